// Quantization configurations by name, for dummy weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// The text of a quantization_config as bench/configs has it; null for a name that is not known.
const char* builtin_quant_config(std::string_view name);
std::vector<std::string> builtin_quant_config_names();

}  // namespace halley
