// Signals that end a server: SIGINT, SIGTERM, and SIGUSR1, which mpirun passes on to its processes
// (at the others it kills them).
#pragma once

#include <string>

namespace halley::cli {

/// From now on such a signal ends the process at once with kExitInterrupted, also as the first
/// process of a container, which the system ends by no signal that it does not handle.
void end_at_signals();

/// From now on the first signal is what wait_for_signal() waits for; the second ends the process.
void drain_at_signals();

/// From any thread, once: wait_for_signal() throws DeviceError with this text.
void end_with_error(const std::string& error);

/// Throws DeviceError upon end_with_error().
void wait_for_signal();

}  // namespace halley::cli
