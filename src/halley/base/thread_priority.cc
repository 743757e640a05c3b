#include "halley/base/thread_priority.h"

#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace halley {

void lower_thread_priority() noexcept {
#ifdef __linux__
  constexpr int kNice = 10;
  // On Linux "nice" belongs to a thread. A failure leaves the thread as it was.
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  static_cast<void>(::setpriority(PRIO_PROCESS, thread, kNice));
#endif
}

}  // namespace halley
