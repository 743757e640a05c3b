#include "halley/quant/stored/fp4_weight.h"

#include <algorithm>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/stored/byte_weight.h"
#include "halley/quant/stored/scale_grid.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

ScaleBlocks blocks_of(const Part& part, int64_t in_features, const Fp4WeightSpec& spec) {
  return {.stored_rows = part.stored_rows,
          .in_features = in_features,
          .block_rows = 1,
          .group_size = spec.group_size};
}

class Fp4Weight : public StoredWeight {
 public:
  struct Data {
    TensorView values;  // the part's rows
    int64_t row_begin = 0;
    ScaleGrid scales;
    float multiplied = 1, divided = 1;  // factors of all scales
  };

  Fp4Weight(WeightDesc desc, Data data) : StoredWeight(std::move(desc)), data_(std::move(data)) {}

  void check_data() const override { data_.scales.check(data_.row_begin, data_.values.shape[0]); }

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    const int64_t row_bytes = data_.values.shape[1];
    for (int64_t n = block.row_begin; n < block.row_begin + block.num_rows; ++n) {
      const std::byte* row = data_.values.data + n * row_bytes;
      for (int64_t k = block.k_begin; k < block.k_end; k += 2) {
        const auto both = static_cast<uint8_t>(row[k / 2]);
        uint8_t* to = code_at(quads, block, n, k);
        to[0] = both & 15u;
        to[1] = both >> 4;
      }
    }
  }

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    data_.scales.read(data_.row_begin + row_begin, num_rows, 0.0f, groups);
    const int64_t num_groups = ceil_div(2 * data_.values.shape[1], desc().group_size);
    for (int64_t g = 0; g < num_groups; ++g) {
      float* of_group = groups + 2 * g * kPanelRows;
      for (int64_t r = 0; r < num_rows; ++r)
        of_group[r] = of_group[r] * data_.multiplied / data_.divided;
      std::fill_n(of_group + kPanelRows, num_rows, 0.0f);
    }
  }

 private:
  Data data_;
};

}  // namespace

std::unique_ptr<StoredWeight> open_fp4_weight(const TensorSource& source, const Part& part,
                                              int64_t in_features, const Fp4WeightSpec& spec) {
  if (in_features % 2 != 0) {
    throw CheckpointError(
        str(source.description(), ": layer ", quote(part.name),
            ": expected an even number of inputs, two of which share a byte, got ", in_features,
            ". Check that config.json belongs to these weights."));
  }
  const ScaleBlocks blocks = blocks_of(part, in_features, spec);
  const TensorInfo& values =
      find_tensor(source, spec.values_name, {DType::kU8}, {part.stored_rows, in_features / 2});
  const TensorInfo& scale =
      spec.has_e8m0_scales
          ? find_scales(source, spec.scale_name, {DType::kU8, DType::kF8E8M0}, blocks)
          : find_scales(source, spec.scale_name, {DType::kF8E4M3}, blocks);
  Fp4Weight::Data data = {
      .values = source.view(values).rows(part.row_begin, part.row_begin + part.out_features),
      .row_begin = part.row_begin,
      .scales = ScaleGrid(source, scale, blocks)};
  WeightDesc desc;
  desc.format = spec.format;
  desc.stored_dtype = DType::kF4;
  desc.layout = PackedLayout::kE2m1Quad;
  desc.bits = 4;
  desc.group_size = std::min(spec.group_size, std::max<int64_t>(in_features, 1));
  desc.tensor_names = {values.name, scale.name};
  desc.stored_bytes = share_of(values, part) + data.scales.bytes_of(part.out_features);
  if (!spec.global_name.empty()) {
    (spec.is_global_reciprocal ? data.divided : data.multiplied) =
        read_input_scale(source, spec.global_name);
    desc.tensor_names.push_back(spec.global_name);
  }
  for (const std::string& name : spec.unused_names) {
    if (source.find(name) != nullptr) desc.tensor_names.push_back(name);
  }
  return std::make_unique<Fp4Weight>(std::move(desc), std::move(data));
}

std::vector<TensorInfo> expected_fp4_tensors(const Part& part, int64_t in_features,
                                             const Fp4WeightSpec& spec) {
  const ScaleBlocks blocks = blocks_of(part, in_features, spec);
  std::vector<TensorInfo> infos = {
      info_of(spec.values_name, DType::kU8, {part.stored_rows, in_features / 2}),
      info_of(spec.scale_name, spec.has_e8m0_scales ? DType::kU8 : DType::kF8E4M3,
              {blocks.num_row_blocks(), blocks.num_groups()})};
  if (!spec.global_name.empty()) infos.push_back(info_of(spec.global_name, DType::kF32, {1}));
  return infos;
}

}  // namespace halley
