#include "halley/quant/nestedfp/nested_weight.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/nested_float.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/nestedfp/nestedfp.h"
#include "halley/quant/stored/byte_weight.h"

namespace halley {
namespace {

class NestedWeight : public StoredWeight {
 public:
  struct Data {
    std::string where;        // of the upper plane, for messages
    TensorView upper, lower;  // the part's rows
    int64_t row_begin = 0;
  };

  NestedWeight(WeightDesc desc, Data data)
      : StoredWeight(std::move(desc)), data_(std::move(data)) {}

  void check_data() const override {
    const int64_t K = data_.upper.shape[1];
    for (int64_t n = 0; n < data_.upper.shape[0]; ++n) {
      int num_wrong = 0;
      for (int64_t k = 0; k < K; ++k) num_wrong |= is_split_f16(at(n, k)) ? 0 : 1;
      if (num_wrong != 0) fail(n);
    }
  }

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    read_byte_block(data_.upper, block, /*flip=*/0, quads);
  }
  void read_lower(const CodeBlock& block, uint8_t* quads) const override {
    read_byte_block(data_.lower, block, /*flip=*/0, quads);
  }

 private:
  NestedFloat at(int64_t n, int64_t k) const {
    const int64_t index = n * data_.upper.shape[1] + k;
    return {static_cast<uint8_t>(data_.upper.data[index]),
            static_cast<uint8_t>(data_.lower.data[index])};
  }

  [[noreturn]] void fail(int64_t n) const {
    int64_t k = 0;
    while (is_split_f16(at(n, k))) ++k;
    const NestedFloat got = at(n, k);
    const bool is_nan = (got.upper & 0x7Fu) == 0x7F;
    throw CheckpointError(
        str(data_.where, ": expected the two bytes of an f16 value of magnitude at most 1.75, got ",
            is_nan ? "NaN, " : "", "upper byte ", int{got.upper}, " and lower byte ",
            int{got.lower}, " at [", data_.row_begin + n, ", ", k,
            "]. The file is damaged: fetch it again, or convert the model again."));
  }

  Data data_;
};

}  // namespace

std::string nested_upper_name(const std::string& layer) { return layer + ".weight_upper"; }
std::string nested_lower_name(const std::string& layer) { return layer + ".weight_lower"; }

bool has_nested_planes(const TensorSource& source, const LinearSpec::Part& part) {
  return source.find(nested_upper_name(part.name)) != nullptr ||
         source.find(nested_lower_name(part.name)) != nullptr;
}

std::unique_ptr<StoredWeight> open_nested_weight(const TensorSource& source,
                                                 const LinearSpec::Part& part,
                                                 int64_t in_features) {
  const Shape shape = {part.stored_rows, in_features};
  const TensorInfo& upper =
      find_tensor(source, nested_upper_name(part.name), {DType::kF8E4M3}, shape);
  const TensorInfo& lower = find_tensor(source, nested_lower_name(part.name), {DType::kU8}, shape);
  if (source.find(dense_weight_name(part)) != nullptr) {
    reject_second_weight(source, part, upper.name);
  }
  const int64_t end = part.row_begin + part.out_features;
  WeightDesc desc;
  desc.format = kQuantNestedFp.name;
  desc.stored_dtype = DType::kF16;
  desc.layout = PackedLayout::kNestedF16Quad;
  desc.bits = 16;
  desc.tensor_names = {upper.name, lower.name};
  desc.stored_bytes = share_of(upper, part) + share_of(lower, part);
  return std::make_unique<NestedWeight>(
      std::move(desc),
      NestedWeight::Data{.where = str(source.description(), ": tensor ", quote(upper.name)),
                         .upper = source.view(upper).rows(part.row_begin, end),
                         .lower = source.view(lower).rows(part.row_begin, end),
                         .row_begin = part.row_begin});
}

std::vector<TensorInfo> expected_nested_tensors(const LinearSpec::Part& part, int64_t in_features) {
  const Shape shape = {part.stored_rows, in_features};
  return {info_of(nested_upper_name(part.name), DType::kF8E4M3, shape),
          info_of(nested_lower_name(part.name), DType::kU8, shape)};
}

}  // namespace halley
