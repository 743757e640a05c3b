#include "halley/quant/gguf/gguf_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/code_words.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/gguf/block_layout.h"

namespace halley {
namespace {

/// No quantized value is larger, so that a finite scale times this gives finite weights.
constexpr float kCodesMax = 256;

class GgufWeight : public StoredWeight {
 public:
  GgufWeight(WeightDesc desc, const TensorSource& source, const TensorInfo& info,
             const LinearSpec::Part& part, int64_t in_features)
      : StoredWeight(std::move(desc)),
        where_(str(source.description(), ": tensor ", quote(info.name))),
        type_(*ggml_type_of_suffix(info.name)),
        layout_(block_layout_of(type_.type)),
        rows_(source.view(info).rows(part.row_begin, part.row_begin + part.out_features)),
        num_blocks_(in_features / type_.block_values),
        num_rows_(part.out_features) {}

  void check_data() const override {
    std::array<float, 2 * kBlockGroupsMax> groups{};
    const auto num_values = static_cast<size_t>(2 * type_.block_values / layout_.group_size);
    for (int64_t row = 0; row < num_rows_; ++row) {
      for (int64_t i = 0; i < num_blocks_; ++i) {
        layout_.read_groups(block(row, i), groups.data());
        for (size_t g = 0; g < num_values; ++g) {
          if (std::isfinite(groups[g] * kCodesMax)) continue;
          throw CheckpointError(str(where_, ": expected finite scales, got ", groups[g], " in row ",
                                    row, ", block ", i,
                                    ". The file is damaged: download it again."));
        }
      }
    }
  }

  void read_codes(const CodeBlock& block_of_codes, uint8_t* quads) const override {
    const int64_t units_per_block = type_.block_values / kQuadUnitInputs;
    UnitCodes codes;
    std::array<uint8_t, kQuadUnitInputs> values{};
    for (int64_t k = block_of_codes.k_begin; k < block_of_codes.k_end; k += kQuadUnitInputs) {
      const int64_t unit = k / kQuadUnitInputs;
      for (int64_t row = 0; row < block_of_codes.num_rows; ++row) {
        layout_.read_codes(block(block_of_codes.row_begin + row, unit / units_per_block),
                           unit % units_per_block, values.data());
        for (size_t quad = 0; quad < kQuadUnitInputs / 4; ++quad) {
          std::memcpy(&codes.quads[quad][row], &values[4 * quad], 4);
        }
      }
      codes.write(0, block_of_codes.num_rows, block_of_codes.k_end - k, quads);
      quads += kQuadUnitInputs / 4 * kQuadValues;
    }
  }

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    const int64_t groups_per_block = type_.block_values / layout_.group_size;
    std::array<float, 2 * kBlockGroupsMax> values{};
    for (int64_t row = 0; row < num_rows; ++row) {
      for (int64_t i = 0; i < num_blocks_; ++i) {
        layout_.read_groups(block(row_begin + row, i), values.data());
        float* out = groups + i * groups_per_block * 2 * kPanelRows + row;
        for (int64_t g = 0; g < groups_per_block; ++g, out += 2 * kPanelRows) {
          out[0] = values[static_cast<size_t>(2 * g)];
          out[kPanelRows] = values[static_cast<size_t>(2 * g + 1)];
        }
      }
    }
  }

 private:
  const uint8_t* block(int64_t row, int64_t index) const {
    const auto block_bytes = static_cast<int64_t>(type_.block_bytes);
    return reinterpret_cast<const uint8_t*>(rows_.data) + (row * num_blocks_ + index) * block_bytes;
  }

  std::string where_;
  const GgmlTypeInfo& type_;
  const BlockLayout& layout_;
  TensorView rows_;
  int64_t num_blocks_;  // of a row
  int64_t num_rows_;
};

}  // namespace

const TensorInfo* find_gguf_tensor(const TensorSource& source, const LinearSpec::Part& part) {
  const std::string prefix = part.name + ".weight.";
  const auto& infos = source.tensors();
  auto it = std::lower_bound(
      infos.begin(), infos.end(), prefix,
      [](const TensorInfo& info, const std::string& key) { return info.name < key; });
  const TensorInfo* found = nullptr;
  for (; it != infos.end() && it->name.starts_with(prefix); ++it) {
    if (ggml_type_of_suffix(it->name) == nullptr) continue;
    if (found != nullptr) {
      throw CheckpointError(str(source.description(), ": layer ", quote(part.name),
                                ": expected its weight once, got tensors ", quote(found->name),
                                " and ", quote(it->name), ". Convert the model again."));
    }
    found = &*it;
  }
  return found;
}

std::unique_ptr<StoredWeight> open_gguf_weight(const TensorSource& source, const TensorInfo& info,
                                               const LinearSpec::Part& part, int64_t in_features) {
  const GgmlTypeInfo& type = *ggml_type_of_suffix(info.name);
  if (in_features % type.block_values != 0) {
    throw CheckpointError(str(source.description(), ": tensor ", quote(info.name), ": expected ",
                              in_features, " inputs, got blocks of ", type.block_values,
                              " values. Convert the model again."));
  }
  const int64_t row_bytes =
      in_features / type.block_values * static_cast<int64_t>(type.block_bytes);
  find_tensor(source, info.name, {DType::kU8}, {part.stored_rows, row_bytes});
  const BlockLayout& layout = block_layout_of(type.type);
  WeightDesc desc;
  desc.format = "gguf";
  desc.stored_dtype = DType::kU8;
  desc.layout = layout.layout;
  desc.bits = layout.bits;
  desc.group_size = layout.group_size;
  desc.zero_kind = layout.zero_kind;
  desc.is_symmetric = layout.zero_kind == ZeroKind::kPoint;
  desc.tensor_names = {info.name};
  desc.stored_bytes = static_cast<double>(part.out_features) * static_cast<double>(row_bytes);
  return std::make_unique<GgufWeight>(std::move(desc), source, info, part, in_features);
}

}  // namespace halley
