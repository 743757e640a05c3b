// The environment and the machine: this is the only place of the library that asks for them.
#pragma once

#include <optional>
#include <string>

namespace halley {

/// The variable's value, or nothing where it is not set or empty.
std::optional<std::string> env_string(const char* name);

/// Whether the variable is there, an empty one too.
bool is_env_set(const char* name);

/// Sets the variable for a library that reads it later, unless the user has set it. No other thread
/// may use the environment meanwhile.
void set_env_if_absent(const char* name, const char* value);

/// Cores that this process may run on (its affinity mask, not the machine's count); at least 1.
int num_usable_cores();

/// The processor's name as the system gives it, for reports: "AMD EPYC ...", "unknown CPU".
std::string cpu_name();

}  // namespace halley
