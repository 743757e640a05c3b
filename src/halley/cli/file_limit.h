// How many files and sockets this process may have open.
#pragma once

#include <cstdint>

namespace halley::cli {

/// Raises the soft limit to the hard one, as far as the system allows, and gives what then holds.
/// Shells often set 1024, and each connection is a file.
int64_t raise_file_limit();

}  // namespace halley::cli
