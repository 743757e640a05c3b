// Waits for other threads that are expected within microseconds.
#pragma once

#include <chrono>

namespace halley {

/// Tells the core that this thread spins.
inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits without giving up the core until is_done() or until the time is over; says whether it is
/// done.
template <typename IsDone>
bool spin_until(const IsDone& is_done, std::chrono::microseconds spin_time) {
  // A pause takes from 4 to 140 cycles by processor, so that time is measured, but not at each one.
  constexpr int kPausesPerClock = 64;
  const auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < kPausesPerClock; ++i) {
      if (is_done()) return true;
      pause_core();
    }
  } while (std::chrono::steady_clock::now() < end);
  return is_done();
}

}  // namespace halley
