#include "halley/quant/stored/kv_scheme.h"

#include <string>

#include "halley/quant/base/config_field.h"

namespace halley {
namespace {

constexpr const char* kAdvice =
    "Remove the field and choose the cache's precision with --kv-dtype.";

}  // namespace

DeclaredKv read_kv_bits(const HfConfig& config) {
  switch (config.integer_or("kv_bits", 16, 0, 64)) {
    case 16:
      return DeclaredKv::kNothing;
    case 8:
      return DeclaredKv::kInt8;
    case 4:
      return DeclaredKv::kInt4;
    default:
      reject_field(config, "kv_bits", "16, 8 or 4", kAdvice);
  }
}

DeclaredKv read_kv_cache_scheme(const HfConfig& config) {
  const auto scheme = config.object("kv_cache_scheme");
  if (!scheme) return DeclaredKv::kNothing;
  if (scheme->string_or("type", "float") != "float") {
    reject_field(*scheme, "type", "\"float\"", kAdvice);
  }
  if (scheme->integer_or("num_bits", 8, 1, 64) != 8) {
    reject_field(*scheme, "num_bits", "8", kAdvice);
  }
  if (!scheme->boolean_or("symmetric", true)) reject_field(*scheme, "symmetric", "true", kAdvice);
  if (scheme->string_or("strategy", "tensor") != "tensor") {
    reject_field(*scheme, "strategy", "\"tensor\"", kAdvice);
  }
  if (scheme->boolean_or("dynamic", false)) reject_field(*scheme, "dynamic", "false", kAdvice);
  return DeclaredKv::kFp8Static;
}

}  // namespace halley
