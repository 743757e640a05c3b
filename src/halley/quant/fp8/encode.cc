#include "halley/quant/fp8/encode.h"

#include "halley/quant/stored/float8_tensors.h"

namespace halley {

std::vector<CheckpointTensor> encode_fp8(const std::string& name, std::span<const float> weight,
                                         int64_t K, std::optional<float> input_scale) {
  return encode_float8(name, weight, K, Float8Scales::kTensor, input_scale);
}

OrderedJson fp8_declaration(const WrittenFormat& format) {
  return {{"quant_method", "fp8"},
          {"activation_scheme", format.is_activation_static ? "static" : "dynamic"},
          {"ignored_layers", dense_layers(format)}};
}

}  // namespace halley
