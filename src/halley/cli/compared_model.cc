#include "halley/cli/compared_model.h"

#include <algorithm>
#include <sstream>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cli {
namespace {

void apply_setting(const std::string& setting, ModelOptions& options) {
  const size_t equal = std::min(setting.find('='), setting.size());
  const std::string name = setting.substr(0, equal);
  const std::string value = setting.substr(std::min(equal + 1, setting.size()));
  if (name == "kv" && kv_dtype_from_name(value)) {
    options.kv_dtype = value;
  } else if (name == "precision" && (value == "full" || value == "low")) {
    options.precision = value;
  } else {
    throw InputError(
        str("MODEL@SETTINGS: expected kv=f32, f16, bf16, int8, int4 or fp8, or "
            "precision=full or low, got ",
            quote(setting), "."));
  }
}

}  // namespace

ModelOptions compared_model(const std::string& text, const ModelOptions& defaults) {
  ModelOptions options = defaults;
  options.model = text;
  const size_t at = text.rfind('@');
  if (at == std::string::npos || text.find('=', at) == std::string::npos) return options;
  options.model = text.substr(0, at);
  std::istringstream settings(text.substr(at + 1));
  for (std::string setting; std::getline(settings, setting, ',');) apply_setting(setting, options);
  return options;
}

}  // namespace halley::cli
