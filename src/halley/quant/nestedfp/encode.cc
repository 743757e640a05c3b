#include "halley/quant/nestedfp/encode.h"

#include <span>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/core/nested_float.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/nestedfp/nested_weight.h"
#include "halley/quant/nestedfp/nestedfp.h"

namespace halley {
namespace {

template <typename Element>
CheckpointTensor tensor_of(std::string name, DType dtype, const Shape& shape,
                           const std::vector<Element>& elements) {
  const auto bytes = std::as_bytes(std::span(elements));
  TensorInfo info = info_of(std::move(name), dtype, shape);
  info.num_bytes = bytes.size();
  return {.info = std::move(info), .data = {bytes.begin(), bytes.end()}};
}

}  // namespace

std::string exception_of(const TensorView& weight, const F16Rounding& rounding) {
  if (rounding.num_beyond == 0) return {};
  const bool overflows = rounding.num_overflows > 0;
  const int64_t first = overflows ? rounding.first_overflow : rounding.first_beyond;
  return str(overflows ? rounding.num_overflows : rounding.num_beyond, " of ", rounding.num_values,
             overflows ? " weights overflow f16" : " weights are beyond 1.75", ", the first is ",
             value_at(weight, first), " at ", index_in_words(weight.shape, first));
}

NestedFpLayer encode_nestedfp(ExecContext& context, const std::string& name,
                              const TensorView& weight) {
  HALLEY_CHECK(weight.shape.size() == 2, name, weight.shape.size());
  const std::string weight_name = name + ".weight";
  std::vector<uint16_t> bits(static_cast<size_t>(weight.num_elements()));
  NestedFpLayer layer;
  layer.rounding = round_to_f16(context, weight_name, weight, bits);
  layer.exception = exception_of(weight, layer.rounding);
  if (layer.rounding.num_overflows > 0) return layer;
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

OrderedJson nestedfp_declaration(const WrittenFormat& format, const RoundedModel& rounded) {
  OrderedJson exceptions = OrderedJson::array();
  for (const WrittenLayer& layer : format.layers) {
    if (!layer.is_quantized) exceptions.push_back(layer.name);
  }
  OrderedJson declaration = {{"quant_method", kQuantNestedFp.name},
                             {"version", kNestedVersion},
                             {"exceptions", std::move(exceptions)}};
  if (!rounded.dtypes.empty()) {
    declaration["rounded_to_f16"] = to_json(rounded.rounding);
    declaration["rounded_to_f16"]["from"] = rounded.dtypes;
  }
  return declaration;
}

}  // namespace halley
