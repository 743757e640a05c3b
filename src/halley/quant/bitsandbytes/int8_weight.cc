#include "halley/quant/bitsandbytes/int8_weight.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/bitsandbytes/bitsandbytes.h"
#include "halley/quant/stored/byte_weight.h"

namespace halley {
namespace {

class Int8Weight final : public StoredWeight {
 public:
  struct Data {
    std::string where;          // of the scales, for messages
    TensorView codes;           // the part's rows
    std::vector<float> scales;  // of the part's rows
  };

  Int8Weight(WeightDesc desc, Data data) : StoredWeight(std::move(desc)), data_(std::move(data)) {}

  void check_data() const override {
    const auto bad = std::find_if(data_.scales.begin(), data_.scales.end(),
                                  [](float scale) { return !std::isfinite(scale); });
    if (bad == data_.scales.end()) return;
    throw CheckpointError(str(data_.where, ": expected finite scales, got ", *bad,
                              ". The file is damaged: fetch it again."));
  }

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    read_byte_block(data_.codes, block, /*flip=*/0x80, quads);
  }

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    constexpr float kMiddle = 128;
    for (int64_t r = 0; r < num_rows; ++r) {
      groups[r] = data_.scales[static_cast<size_t>(row_begin + r)];
      groups[kPanelRows + r] = kMiddle;
    }
  }

 private:
  Data data_;
};

std::string scales_name(const LinearSpec::Part& part) { return part.name + ".SCB"; }

/// Old GPUs had other orders of codes; the number says which.
void require_row_order(const TensorSource& source, const std::string& name) {
  const TensorInfo* info = source.find(name);
  if (info == nullptr) return;
  const TensorView view = source.view(find_tensor(source, name, {DType::kU8}, info->shape));
  if (view.num_elements() == 1 && view.data[0] == std::byte{0}) return;
  throw UnsupportedError(str(source.description(), ": tensor ", quote(name),
                             ": expected 0, rows in order, got another order of codes. Save the "
                             "model again with a current bitsandbytes."));
}

}  // namespace

bool has_int8_weight(const TensorSource& source, const LinearSpec::Part& part) {
  return source.find(scales_name(part)) != nullptr;
}

std::unique_ptr<StoredWeight> open_int8_weight(const TensorSource& source,
                                               const LinearSpec::Part& part, int64_t in_features) {
  constexpr float kLargest = 127;
  const TensorInfo& weight =
      find_tensor(source, part.name + ".weight", {DType::kI8}, {part.stored_rows, in_features});
  const TensorInfo& scale =
      find_tensor(source, scales_name(part), {DType::kF32}, {part.stored_rows});
  const std::string order = part.name + ".weight_format";
  require_row_order(source, order);
  const int64_t end = part.row_begin + part.out_features;
  Int8Weight::Data data = {.where = str(source.description(), ": tensor ", quote(scale.name)),
                           .codes = source.view(weight).rows(part.row_begin, end),
                           .scales = to_f32(source.view(scale).rows(part.row_begin, end))};
  for (float& value : data.scales) value /= kLargest;
  WeightDesc desc;
  desc.format = kQuantBitsAndBytes.name;
  desc.stored_dtype = DType::kI8;
  desc.layout = PackedLayout::kU8Quad;
  desc.bits = 8;
  desc.group_size = std::max<int64_t>(in_features, 1);
  desc.tensor_names = {weight.name, scale.name};
  if (source.find(order) != nullptr) desc.tensor_names.push_back(order);
  desc.stored_bytes = share_of(weight, part) + share_of(scale, part);
  return std::make_unique<Int8Weight>(std::move(desc), std::move(data));
}

}  // namespace halley
