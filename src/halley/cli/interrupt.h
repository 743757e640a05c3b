// Ctrl-C as a flag, for commands that finish cleanly.
#pragma once

namespace halley::cli {

/// From now on SIGINT sets the flag instead of ending the process. A read of standard
/// input that waits is interrupted too.
void watch_for_interrupt();

/// From now on SIGINT ends the process again. Clears the flag.
void stop_watching_for_interrupt();

bool is_interrupted();

}  // namespace halley::cli
