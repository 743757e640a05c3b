// Ctrl-C as a flag, for commands that end what they do in good order.
#pragma once

namespace halley::cli {

/// From now on SIGINT sets the flag instead of ending the process. Waiting for standard input ends
/// too.
void watch_for_interrupt();

/// From now on SIGINT ends the process again, and the flag is not set.
void stop_watching_for_interrupt();

bool is_interrupted();

}  // namespace halley::cli
