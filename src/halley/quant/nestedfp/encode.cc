#include "halley/quant/nestedfp/encode.h"

#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/nested_float.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/nestedfp/nested_weight.h"
#include "halley/quant/nestedfp/nestedfp.h"

namespace halley {
namespace {

/// The index of element i of a weight [N, K] as text: "[2, 17]".
std::string place(const TensorView& weight, size_t i) {
  const auto K = static_cast<size_t>(weight.shape[1]);
  return str("[", i / K, ", ", i % K, "]");
}

/// The bits of all elements, none of them rounded.
std::vector<uint16_t> read_f16(const std::string& name, const TensorView& weight,
                               DType file_dtype) {
  const bool is_wider = weight.dtype == DType::kBf16 || weight.dtype == DType::kF32;
  if (weight.dtype != DType::kF16 && !is_wider) {
    throw UnsupportedError(str("tensor ", quote(name), ": expected type f16, bf16 or f32, got ",
                               weight.dtype, ". Start from an unquantized checkpoint."));
  }
  std::vector<uint16_t> bits(static_cast<size_t>(weight.num_elements()));
  if (!is_wider) {
    if (!bits.empty()) std::memcpy(bits.data(), weight.data, bits.size() * sizeof(uint16_t));
    return bits;
  }
  const std::vector<float> values = to_f32(weight);
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = f32_to_f16(values[i]);
    if (std::isnan(values[i]) || f16_to_f32(bits[i]) == values[i]) continue;
    throw UnsupportedError(str("tensor ", quote(name), ": expected values that f16 holds, got ",
                               file_dtype, " ", values[i], " at ", place(weight, i),
                               ". Convert the checkpoint to f16 first, or use another format."));
  }
  return bits;
}

template <typename Element>
CheckpointTensor tensor_of(std::string name, DType dtype, const Shape& shape,
                           const std::vector<Element>& elements) {
  const auto bytes = std::as_bytes(std::span(elements));
  TensorInfo info = info_of(std::move(name), dtype, shape);
  info.num_bytes = bytes.size();
  return {.info = std::move(info), .data = {bytes.begin(), bytes.end()}};
}

std::string exception_of(const TensorView& weight, std::span<const uint16_t> bits) {
  size_t count = 0, first = 0;
  for (size_t i = 0; i < bits.size(); ++i) {
    if (can_split_f16(bits[i])) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return {};
  return str(count, " of ", bits.size(), " weights are beyond 1.75 or not finite, the first is ",
             f16_to_f32(bits[first]), " at ", place(weight, first));
}

}  // namespace

NestedFpLayer encode_nestedfp(const std::string& name, const TensorView& weight,
                              std::optional<DType> file_dtype) {
  HALLEY_CHECK(weight.shape.size() == 2, name, weight.shape.size());
  const std::string weight_name = name + ".weight";
  const std::vector<uint16_t> bits =
      read_f16(weight_name, weight, file_dtype.value_or(weight.dtype));
  NestedFpLayer layer;
  layer.exception = exception_of(weight, bits);
  if (!layer.exception.empty()) {
    layer.tensors.push_back(tensor_of(weight_name, DType::kF16, weight.shape, bits));
    return layer;
  }
  std::vector<uint8_t> upper(bits.size()), lower(bits.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    const NestedFloat nested = split_f16(bits[i]);
    upper[i] = nested.upper;
    lower[i] = nested.lower;
  }
  layer.tensors.push_back(tensor_of(nested_upper_name(name), DType::kF8E4M3, weight.shape, upper));
  layer.tensors.push_back(tensor_of(nested_lower_name(name), DType::kU8, weight.shape, lower));
  return layer;
}

OrderedJson nestedfp_declaration(const WrittenFormat& format) {
  OrderedJson exceptions = OrderedJson::array();
  for (const WrittenLayer& layer : format.layers) {
    if (!layer.is_quantized) exceptions.push_back(layer.name);
  }
  return {{"quant_method", kQuantNestedFp.name},
          {"version", kNestedVersion},
          {"exceptions", std::move(exceptions)}};
}

}  // namespace halley
