#include "halley/cli/interrupt.h"

#include <atomic>

#include <signal.h>

namespace halley::cli {
namespace {

std::atomic<bool> has_interrupt{false};
static_assert(std::atomic<bool>::is_always_lock_free, "written by a signal handler");

}  // namespace

// Without SA_RESTART, so that it also ends the wait for a line.
void watch_for_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { has_interrupt = true; };
  ::sigaction(SIGINT, &action, nullptr);
}

void stop_watching_for_interrupt() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGINT, &action, nullptr);
  has_interrupt = false;
}

bool is_interrupted() { return has_interrupt; }

}  // namespace halley::cli
