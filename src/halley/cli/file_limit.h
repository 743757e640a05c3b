// The limit on open files and sockets of this process.
#pragma once

#include <cstdint>

namespace halley::cli {

/// Raises the soft limit to the hard one as far as the system allows, and returns the new limit.
/// Shells often set 1024, and each connection takes one.
int64_t raise_file_limit();

}  // namespace halley::cli
