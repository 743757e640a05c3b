// The environment: this is the only place of the library that reads it.
#pragma once

#include <optional>
#include <string>

namespace halley {

/// The variable's value, or nothing where it is not set or empty.
std::optional<std::string> env_string(const char* name);

/// Cores that this process may run on (its affinity mask, not the machine's count); at least 1.
int num_usable_cores();

}  // namespace halley
