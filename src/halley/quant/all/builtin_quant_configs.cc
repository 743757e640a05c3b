#include "halley/quant/all/builtin_quant_configs.h"

#include <array>

namespace halley {
namespace {

struct BuiltinQuantConfig {
  std::string_view name;
  const char* text;
};

constexpr std::array kConfigs = {
    BuiltinQuantConfig{"fp8", R"({"quant_method": "compressed-tensors",
      "format": "float-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
      "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "float", "symmetric": true, "strategy": "channel"},
      "input_activations": {"num_bits": 8, "type": "float", "symmetric": true,
      "strategy": "token", "dynamic": true}}}})"},
    BuiltinQuantConfig{"nestedfp",
                       R"({"quant_method": "nestedfp", "version": 1, "exceptions": ["lm_head"]})"},
    BuiltinQuantConfig{"w4a16", R"({"quant_method": "gptq", "bits": 4, "group_size": 128,
      "sym": false, "desc_act": false, "lm_head": false})"},
    BuiltinQuantConfig{"w4a8", R"({"quant_method": "qoq", "wbits": 4, "group_size": -1})"},
    BuiltinQuantConfig{"w4a8_group", R"({"quant_method": "qoq", "wbits": 4, "group_size": 128})"},
    BuiltinQuantConfig{"w4ax",
                       R"({"quant_method": "fmpq", "version": 1, "bits": 4, "group_size": 128})"}};

}  // namespace

const char* builtin_quant_config(std::string_view name) {
  for (const BuiltinQuantConfig& config : kConfigs) {
    if (name == config.name) return config.text;
  }
  return nullptr;
}

std::vector<std::string> builtin_quant_config_names() {
  std::vector<std::string> names;
  for (const BuiltinQuantConfig& config : kConfigs) names.emplace_back(config.name);
  return names;
}

}  // namespace halley
