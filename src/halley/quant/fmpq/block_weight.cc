#include "halley/quant/fmpq/block_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/quant/base/code_words.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/fmpq/fmpq.h"
#include "halley/quant/stored/byte_weight.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr const char* kDamaged =
    ". The file is damaged or was quantized wrongly: fetch it again, or quantize the model again.";

/// For messages about one tensor.
std::string where_of(const TensorSource& source, const std::string& name) {
  return str(source.description(), ": tensor ", quote(name), ": ");
}

class BlockWeight : public StoredWeight {
 public:
  struct Data {
    std::string codes_where, scales_where;
    TensorView codes;   // [stored_rows, ceil(K/2)]
    TensorView scales;  // [stored_rows, ceil(K/128)]
    int64_t row_begin = 0;
    int64_t num_rows = 0;
    int64_t K = 0;
  };

  BlockWeight(WeightDesc desc, Data data) : StoredWeight(std::move(desc)), data_(std::move(data)) {}

  void check_data() const override {
    for (int64_t row = 0; row < data_.num_rows; ++row) {
      const int64_t n = data_.row_begin + row;
      for (int64_t g = 0; g < num_groups(); ++g) {
        const float scale = scale_at(n, g);
        if (std::isfinite(scale) && scale > 0) continue;
        throw CheckpointError(str(data_.scales_where, "expected finite numbers above zero, got ",
                                  scale, " at [", n, ", ", g, "]", kDamaged));
      }
      if (data_.K % 2 == 0) continue;
      const int padding = load_word<uint8_t>(data_.codes.data, (n + 1) * row_bytes() - 1) >> 4;
      if (padding == 0) continue;
      throw CheckpointError(str(data_.codes_where,
                                "expected zero in the high half of the last byte of each output, "
                                "got ",
                                padding, " at [", n, ", ", row_bytes() - 1, "]", kDamaged));
    }
  }

  std::vector<int32_t> input_perm() const override {
    return desc().declared_perm ? *desc().declared_perm : std::vector<int32_t>();
  }

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    for (int64_t row = block.row_begin; row < block.row_begin + block.num_rows; ++row) {
      const std::byte* codes = data_.codes.data + (data_.row_begin + row) * row_bytes();
      int64_t k = block.k_begin;
      for (; k + 4 <= block.k_end; k += 4) {
        const uint32_t quad = spread_quad<4>(load_word<uint16_t>(codes, k / 4));
        std::memcpy(code_at(quads, block, row, k), &quad, sizeof(quad));
      }
      for (; k < block.k_end; ++k) {
        const int pair = load_word<uint8_t>(codes, k / 2);
        *code_at(quads, block, row, k) = static_cast<uint8_t>(k % 2 == 0 ? pair & 15 : pair >> 4);
      }
    }
  }

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    for (int64_t r = 0; r < num_rows; ++r) {
      for (int64_t g = 0; g < num_groups(); ++g) {
        float* group = groups + 2 * g * kPanelRows + r;
        group[0] = scale_at(data_.row_begin + row_begin + r, g);
        group[kPanelRows] = static_cast<float>(kFmpqZero);
      }
    }
  }

 private:
  int64_t row_bytes() const { return ceil_div(data_.K, int64_t{2}); }
  int64_t num_groups() const { return ceil_div(data_.K, kFmpqBlock); }
  float scale_at(int64_t n, int64_t g) const {
    return f16_to_f32(load_word<uint16_t>(data_.scales.data, n * num_groups() + g));
  }

  Data data_;
};

/// The number of packed inputs in 8-bit blocks.
int64_t read_s8_inputs(const TensorSource& source, const TensorInfo& info, int64_t in_features) {
  const TensorView view = source.view(info);
  int64_t num_s8 = 0;
  for (int64_t i = 0; i < info.shape[0]; ++i) {
    const int bits = load_word<uint8_t>(view.data, i);
    if (bits != 8 && bits != 4) {
      throw CheckpointError(str(where_of(source, info.name), "expected 8 or 4, got ", bits, " at [",
                                i, "]", kDamaged));
    }
    if (bits == 4) continue;
    if (num_s8 != i) {
      throw CheckpointError(str(where_of(source, info.name),
                                "expected blocks of 8 bits before those of 4, got 8 at [", i,
                                "] and 4 at [", num_s8, "]", kDamaged));
    }
    ++num_s8;
  }
  return std::min(in_features, num_s8 * kFmpqBlock);
}

float read_clip(const TensorSource& source, const TensorInfo& info) {
  const auto clip = load_word<float>(source.view(info).data, 0);
  // Written so that NaN fails.
  if (clip > 0 && clip <= 1) return clip;
  throw CheckpointError(str(where_of(source, info.name),
                            "expected a number above 0 and at most 1, got ", clip, kDamaged));
}

std::vector<int32_t> read_perm(const TensorSource& source, const TensorInfo& info) {
  const TensorView view = source.view(info);
  const int64_t K = info.shape[0];
  std::vector<int32_t> perm;
  std::vector<bool> is_taken(static_cast<size_t>(K));
  for (int64_t k = 0; k < K; ++k) {
    const auto input = load_word<int32_t>(view.data, k);
    if (input < 0 || input >= K || is_taken[static_cast<size_t>(input)]) {
      throw CheckpointError(str(where_of(source, info.name), "expected each of 0 to ", K - 1,
                                " once, got ", input, " at [", k, "]",
                                input >= 0 && input < K ? " a second time" : "", kDamaged));
    }
    is_taken[static_cast<size_t>(input)] = true;
    perm.push_back(input);
  }
  return perm;
}

}  // namespace

std::vector<TensorInfo> expected_block_tensors(const Part& part, int64_t in_features) {
  const int64_t num_blocks = ceil_div(in_features, kFmpqBlock);
  return {info_of(part.name + ".qweight", DType::kU8,
                  {part.stored_rows, ceil_div(in_features, int64_t{2})}),
          info_of(part.name + ".scales", DType::kF16, {part.stored_rows, num_blocks}),
          info_of(part.name + ".block_bits", DType::kU8, {num_blocks}),
          info_of(part.name + ".activation_clip", DType::kF32, {1})};
}

std::unique_ptr<StoredWeight> open_block_weight(const TensorSource& source, const Part& part,
                                                int64_t in_features) {
  std::vector<const TensorInfo*> infos;
  for (const TensorInfo& expected : expected_block_tensors(part, in_features)) {
    infos.push_back(&find_tensor(source, expected.name, {expected.dtype}, expected.shape));
  }
  BlockWeight::Data data;
  std::shared_ptr<const std::vector<int32_t>> perm;
  const std::string order_name = part.name + ".input_order";
  if (source.find(order_name) != nullptr) {
    infos.push_back(&find_tensor(source, order_name, {DType::kI32}, {in_features}));
    perm = std::make_shared<const std::vector<int32_t>>(read_perm(source, *infos.back()));
  }
  WeightDesc desc;
  desc.format = kQuantFmpq.name;
  desc.stored_dtype = DType::kU8;
  desc.layout = PackedLayout::kU4Quad;
  desc.bits = 4;
  desc.group_size = std::min(kFmpqBlock, in_features);
  desc.has_input_perm = perm != nullptr;
  desc.has_packed_codes = true;
  desc.declared_perm = std::move(perm);
  desc.activation = ActivationQuant::kS4S8Block128;
  desc.num_s8_inputs = read_s8_inputs(source, *infos[2], in_features);
  desc.s4_clip = read_clip(source, *infos[3]);
  for (const TensorInfo* info : infos) {
    desc.tensor_names.push_back(info->name);
    desc.stored_bytes += share_of(*info, part);
  }
  data.codes_where = where_of(source, infos[0]->name);
  data.scales_where = where_of(source, infos[1]->name);
  data.codes = source.view(*infos[0]);
  data.scales = source.view(*infos[1]);
  data.row_begin = part.row_begin;
  data.num_rows = part.out_features;
  data.K = in_features;
  return std::make_unique<BlockWeight>(std::move(desc), std::move(data));
}

}  // namespace halley
