#include "halley/quant/base/dense_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

/// "f16, bf16 or f32"
std::string one_of(std::initializer_list<DType> dtypes) {
  std::string names;
  for (const DType* dtype = dtypes.begin(); dtype != dtypes.end(); ++dtype) {
    const bool is_last = dtype + 1 == dtypes.end();
    names += str(names.empty() ? "" : is_last ? " or " : ", ", *dtype);
  }
  return names;
}

template <typename Element>
Element load_unaligned(const std::byte* data, size_t index) {
  Element element;
  std::memcpy(&element, data + index * sizeof(Element), sizeof(Element));
  return element;
}

float element_as_f32(const TensorView& view, size_t index) {
  switch (view.dtype) {
    case DType::kF32:
      return load_unaligned<float>(view.data, index);
    case DType::kF16:
      return f16_to_f32(load_unaligned<uint16_t>(view.data, index));
    case DType::kBf16:
      return bf16_to_f32(load_unaligned<uint16_t>(view.data, index));
    case DType::kF8E8M0: {  // 2^(code - 127); 255 is NaN, and 0 is an f32 subnormal
      const auto code = load_unaligned<uint8_t>(view.data, index);
      return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
    }
    default:
      HALLEY_CHECK(false, name_of(view.dtype));
  }
  return 0;
}

}  // namespace

const TensorInfo& find_tensor(const TensorSource& source, std::string_view name,
                              std::initializer_list<DType> dtypes, const Shape& shape) {
  const TensorInfo* info = source.find(name);
  const std::string where = str(source.description(), ": tensor ", quote(name));
  if (info == nullptr) {
    throw CheckpointError(str(where, ": expected a tensor of shape ", shape,
                              ", got none. Check that config.json belongs to these weights."));
  }
  if (std::find(dtypes.begin(), dtypes.end(), info->dtype) == dtypes.end()) {
    throw CheckpointError(str(where, ": expected type ", one_of(dtypes), ", got ", info->dtype,
                              ". Convert the checkpoint, or state its quantization_config."));
  }
  if (info->shape != shape) {
    throw CheckpointError(str(where, ": expected shape ", shape, ", got ", info->shape,
                              ". Check that config.json belongs to these weights."));
  }
  return *info;
}

const TensorInfo& find_dense_tensor(const TensorSource& source, std::string_view name,
                                    const Shape& shape) {
  return find_tensor(source, name, {DType::kF16, DType::kBf16, DType::kF32}, shape);
}

std::vector<float> to_f32(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element_as_f32(view, i);
  return values;
}

}  // namespace halley
