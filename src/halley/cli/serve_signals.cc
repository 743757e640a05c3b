#include "halley/cli/serve_signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <string>

#include <signal.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/cli/command.h"

namespace halley::cli {
namespace {

constexpr const char* kErrorByte = "e";

// The signals that the process lives through. The handler counts down, and writes a byte for each
// into the pipe.
std::atomic<int> num_harmless_signals{0};
std::array<int, 2> signal_pipe = {-1, -1};
// Written before the byte that tells of it.
std::string end_error;
static_assert(std::atomic<int>::is_always_lock_free, "written by a signal handler");

void on_signal(int) {
  if (num_harmless_signals.fetch_sub(1) <= 0) ::_exit(kExitInterrupted);
  const int saved_errno = errno;
  // The pipe has room for one byte; a failure cannot be reported here.
  [[maybe_unused]] const ssize_t written = ::write(signal_pipe[1], "x", 1);
  errno = saved_errno;
}

}  // namespace

void end_at_signals() {
  if (::pipe(signal_pipe.data()) != 0) throw DeviceError("serve: cannot make a pipe.");
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(signal, &action, nullptr);
}

void drain_at_signals() { num_harmless_signals = 1; }

void end_with_error(const std::string& error) {
  end_error = error;
  [[maybe_unused]] const ssize_t written = ::write(signal_pipe[1], kErrorByte, 1);
}

void wait_for_signal() {
  char byte = 0;
  while (::read(signal_pipe[0], &byte, 1) < 0 && errno == EINTR) {
  }
  if (byte == *kErrorByte) throw DeviceError(end_error);
}

}  // namespace halley::cli
