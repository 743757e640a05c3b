#include "halley/quant/fmpq/encode.h"

#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/written_tensors.h"
#include "halley/quant/fmpq/block_weight.h"
#include "halley/quant/fmpq/fmpq.h"

namespace halley {
namespace {

/// Throws UnsupportedError unless the format supports these settings.
void check_settings(const std::string& where, int bits, int64_t group_size, bool is_symmetric) {
  if (bits == 4 && group_size == kFmpqBlock && is_symmetric) return;
  throw UnsupportedError(str(where, ": expected 4 bits, symmetric, in groups of ", kFmpqBlock,
                             ", got ", bits, " bits, ", is_symmetric ? "symmetric" : "asymmetric",
                             ", in groups of ", group_size,
                             ". Quantize so, or choose another format."));
}

std::vector<uint8_t> packed_codes(const QuantizedWeight& weight) {
  const int64_t row_bytes = ceil_div(weight.K, int64_t{2});
  std::vector<uint8_t> bytes(static_cast<size_t>(weight.N * row_bytes));
  for (int64_t n = 0; n < weight.N; ++n) {
    for (int64_t k = 0; k < weight.K; ++k) {
      const uint8_t code = weight.codes[static_cast<size_t>(n * weight.K + k)];
      HALLEY_CHECK(code < 16, n, k, +code);
      uint8_t& pair = bytes[static_cast<size_t>(n * row_bytes + k / 2)];
      pair = static_cast<uint8_t>(pair | (code << (k % 2 * 4)));
    }
  }
  return bytes;
}

void check_input(const FmpqInput& input, int64_t K) {
  HALLEY_CHECK(input.num_s8_blocks >= 0 && input.num_s8_blocks <= ceil_div(K, kFmpqBlock),
               input.num_s8_blocks, K);
  HALLEY_CHECK(input.s4_clip > 0 && input.s4_clip <= 1, input.s4_clip);
  if (input.input_perm.empty()) return;
  HALLEY_CHECK(static_cast<int64_t>(input.input_perm.size()) == K, input.input_perm.size(), K);
  std::vector<bool> is_taken(static_cast<size_t>(K));
  for (const int32_t k : input.input_perm) {
    HALLEY_CHECK(k >= 0 && k < K && !is_taken[static_cast<size_t>(k)], k, K);
    is_taken[static_cast<size_t>(k)] = true;
  }
}

}  // namespace

std::vector<CheckpointTensor> encode_fmpq(const std::string& name, const QuantizedWeight& weight,
                                          const FmpqInput& input) {
  const int64_t N = weight.N, K = weight.K;
  // A layer of fewer than 128 inputs has one shorter group.
  const bool is_one_group = K < kFmpqBlock && weight.group_size >= K;
  check_settings(str("layer ", quote(name)), weight.bits,
                 is_one_group ? kFmpqBlock : weight.group_size, weight.is_symmetric);
  if (!weight.group_of_input.empty()) {
    throw UnsupportedError(str("layer ", quote(name),
                               ": expected groups of consecutive inputs, got a g_idx. "
                               "Quantize with static groups, or choose another format."));
  }
  check_input(input, K);
  const int64_t num_blocks = ceil_div(K, kFmpqBlock);
  HALLEY_CHECK(static_cast<int64_t>(weight.codes.size()) == N * K, weight.codes.size(), N, K);
  HALLEY_CHECK(static_cast<int64_t>(weight.scales.size()) == N * num_blocks, weight.scales.size());
  for (const float scale : weight.scales) HALLEY_CHECK(scale > 0, scale);
  for (const uint8_t zero : weight.zeros) HALLEY_CHECK(zero == kFmpqZero, +zero);
  std::vector<uint8_t> block_bits(static_cast<size_t>(num_blocks), 4);
  for (size_t i = 0; i < static_cast<size_t>(input.num_s8_blocks); ++i) block_bits[i] = 8;
  std::vector<CheckpointTensor> tensors = {
      written_tensor(name + ".qweight", DType::kU8, {N, ceil_div(K, int64_t{2})},
                     packed_codes(weight)),
      written_f16(name + ".scales", {N, num_blocks}, weight.scales),
      written_tensor(name + ".block_bits", DType::kU8, {num_blocks}, block_bits),
      written_tensor(name + ".activation_clip", DType::kF32, {1},
                     std::vector<float>{input.s4_clip})};
  if (!input.input_perm.empty()) {
    tensors.push_back(written_tensor(name + ".input_order", DType::kI32, {K}, input.input_perm));
  }
  return tensors;
}

OrderedJson fmpq_declaration(const WrittenFormat& format, std::optional<double> s4_share) {
  check_settings(kQuantFmpq.name, format.bits, format.group_size, format.is_symmetric);
  std::vector<std::string> dense_layers;
  for (const WrittenLayer& layer : format.layers) {
    if (layer.is_quantized) {
      check_settings(str("layer ", quote(layer.name)), layer.bits, layer.group_size,
                     layer.is_symmetric);
    } else {
      dense_layers.push_back(layer.name);
    }
  }
  OrderedJson declaration = {{"quant_method", kQuantFmpq.name},
                             {"version", 1},
                             {"bits", 4},
                             {"group_size", kFmpqBlock},
                             {"kv_bits", format.kv_bits},
                             {"modules_to_not_convert", dense_layers}};
  if (s4_share) declaration["s4_share"] = *s4_share;
  return declaration;
}

}  // namespace halley
