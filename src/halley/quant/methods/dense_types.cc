#include "halley/quant/methods/dense_types.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

uint16_t to_16_bits(const std::string& name, float value, DType dtype) {
  const bool is_f16 = dtype == DType::kF16;
  const uint16_t bits = is_f16 ? f32_to_f16(value) : f32_to_bf16(value);
  if (std::isfinite(is_f16 ? f16_to_f32(bits) : bf16_to_f32(bits))) return bits;
  throw UnsupportedError(str("tensor ", quote(name), ": expected numbers that ", name_of(dtype),
                             " holds, got ", value,
                             ". Switch smoothing off with --without, or convert the model."));
}

}  // namespace

CheckpointTensor to_stored_type(const std::string& name, const TensorView& view, DType dtype) {
  HALLEY_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBf16,
               name_of(dtype));
  CheckpointTensor tensor = {.info = {.name = name, .dtype = dtype, .shape = view.shape},
                             .data = {}};
  if (view.dtype == dtype) {
    tensor.data.assign(view.data, view.data + view.num_bytes());
  } else {
    const std::vector<float> values = to_f32(view);
    tensor.data.resize(values.size() * static_cast<size_t>(bits_of(dtype)) / 8);
    if (dtype == DType::kF32) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
    for (size_t i = 0; dtype != DType::kF32 && i < values.size(); ++i) {
      const uint16_t bits = to_16_bits(name, values[i], dtype);
      std::memcpy(tensor.data.data() + i * sizeof(bits), &bits, sizeof(bits));
    }
  }
  tensor.info.num_bytes = tensor.data.size();
  return tensor;
}

DType stored_type_of(const TensorSource& original, const std::string& name, DType otherwise) {
  const TensorInfo* info = original.find(name);
  return info == nullptr ? otherwise : info->dtype;
}

}  // namespace halley
