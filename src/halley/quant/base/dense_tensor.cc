#include "halley/quant/base/dense_tensor.h"

#include <cstring>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

bool is_dense_float(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBf16 || dtype == DType::kF32;
}

template <typename Element>
Element load_unaligned(const std::byte* data, size_t index) {
  Element element;
  std::memcpy(&element, data + index * sizeof(Element), sizeof(Element));
  return element;
}

}  // namespace

const TensorInfo& find_dense_tensor(const TensorSource& source, std::string_view name,
                                    const Shape& shape) {
  const TensorInfo* info = source.find(name);
  const std::string where = str(source.description(), ": tensor ", quote(name));
  if (info == nullptr) {
    throw CheckpointError(str(where, ": expected a tensor of shape ", shape,
                              ", got none. Check that config.json belongs to these weights."));
  }
  if (!is_dense_float(info->dtype)) {
    throw CheckpointError(str(where, ": expected type f16, bf16 or f32, got ", info->dtype,
                              ". Convert the checkpoint, or state its quantization_config."));
  }
  if (info->shape != shape) {
    throw CheckpointError(str(where, ": expected shape ", shape, ", got ", info->shape,
                              ". Check that config.json belongs to these weights."));
  }
  return *info;
}

std::vector<float> to_f32(const TensorView& view) {
  HALLEY_CHECK(is_dense_float(view.dtype), name_of(view.dtype));
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (view.dtype == DType::kF32) {
      values[i] = load_unaligned<float>(view.data, i);
    } else {
      const auto bits = load_unaligned<uint16_t>(view.data, i);
      values[i] = view.dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    }
  }
  return values;
}

}  // namespace halley
