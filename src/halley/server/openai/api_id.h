// Generates ids of answers and of tool calls.
#pragma once

#include <string>

namespace halley {

/// `prefix` and `num_chars` random letters and digits: unique in practice, not secret. Any thread.
std::string random_id(const std::string& prefix, int num_chars);

}  // namespace halley
