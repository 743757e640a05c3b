#include "halley/quant/base/quant_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"

namespace halley {
namespace {

constexpr std::array<const char*, 3> kFileNames = {"quantize_config.json", "quant_config.json",
                                                   "hf_quant_config.json"};
constexpr size_t kFileBytesMax = 16 << 20;

bool has_any(const HfConfig& fields, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return fields.has(name); });
}

std::string method_of(const HfConfig& fields) {
  for (const char* field : {"quant_method", "method"}) {
    if (fields.has(field)) return lower_case(fields.string(field));
  }
  if (fields.has("config_groups")) return "compressed-tensors";
  if (has_any(fields, {"quant_algo", "producer"})) return "modelopt";
  if (fields.has("wbits")) return "qoq";
  if (has_any(fields, {"zero_point", "version"})) return "awq";
  if (has_any(fields, {"bits", "w_bit"})) return "gptq";
  fields.fail("quant_method",
              "expected the name of a quantization method, got nothing, and no field tells it "
              "(bits, wbits, quant_algo, config_groups). State quant_method.");
}

}  // namespace

std::string QuantConfig::where() const {
  return fields ? str(fields->where(), ": field '", fields->prefix(), "quant_method'") : "";
}

QuantConfig quant_config_of(HfConfig fields) {
  std::string method = method_of(fields);
  return {std::move(fields), std::move(method)};
}

QuantConfig read_quant_config(const HfConfig& config, const std::filesystem::path& model_dir) {
  if (auto fields = config.object("quantization_config")) return quant_config_of(*fields);
  if (const auto text_config = config.object("text_config")) {
    if (auto fields = text_config->object("quantization_config")) return quant_config_of(*fields);
  }
  if (model_dir.empty()) return {};
  for (const char* name : kFileNames) {
    const std::filesystem::path path = model_dir / name;
    if (!std::filesystem::exists(path)) continue;
    HfConfig fields = HfConfig::parse(read_text_file(path, kFileBytesMax), path.string());
    return quant_config_of(std::move(fields));
  }
  return {};
}

}  // namespace halley
