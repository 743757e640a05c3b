#include "halley/parallel/base/thread_meeting.h"

namespace halley {

// A thread that is about to sleep counts itself before it asks for the last time, and this one
// stores before it reads the count: one of them sees the other. The lock lets it reach its sleep.
void ThreadMeeting::announce() {
  if (num_sleeping_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }
  wake_.notify_all();
}

void ThreadMeeting::abort_all(const std::string& reason) {
  abort_reason_.set(reason);
  announce();
}

}  // namespace halley
