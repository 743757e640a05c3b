#include "halley/quant/qoq/encode.h"

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/quant/base/written_tensors.h"
#include "halley/quant/qoq/tiled_weight.h"

namespace halley {
namespace {

constexpr float kF16Max = 65504.0f;

std::vector<uint8_t> tiled_codes(const QuantizedWeight& weight) {
  std::vector<uint8_t> bytes(static_cast<size_t>(weight.N * weight.K / 2));
  for (int64_t n = 0; n < weight.N; ++n) {
    const uint8_t* row = weight.codes.data() + n * weight.K;
    const int shift = n % kCodeTile < kCodeTile / 2 ? 0 : 4;
    for (int64_t k = 0; k < weight.K; ++k) {
      uint8_t& byte = bytes[static_cast<size_t>(tile_byte_of(n, k, weight.K))];
      byte = static_cast<uint8_t>(byte | row[k] << shift);
    }
  }
  return bytes;
}

/// s1_szeros: f16(scale * zero), per-channel.
CheckpointTensor scaled_zeros(const std::string& name, const QuantizedWeight& weight) {
  std::vector<uint16_t> bits(static_cast<size_t>(weight.N));
  for (size_t n = 0; n < bits.size(); ++n) {
    const float scaled_zero = weight.scales[n] * static_cast<float>(weight.zeros[n]);
    if (scaled_zero > kF16Max) {
      reject_to_write(name, str("scale times zero of at most ", kF16Max),
                      str(scaled_zero, " of output ", n));
    }
    bits[n] = f32_to_f16(scaled_zero);
  }
  return written_tensor(name + ".s1_szeros", DType::kF16, {weight.N}, bits);
}

/// s2_scales and s2_zeros, [K/128, N], their columns permuted by permuted_output().
void add_second_level(const std::string& name, const QuantizedWeight& weight,
                      std::vector<CheckpointTensor>& tensors) {
  const int64_t N = weight.N, num_groups = weight.num_groups();
  std::vector<int8_t> scales(weight.factors.size()), zeros(weight.factors.size());
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t g = 0; g < num_groups; ++g) {
      const auto from = static_cast<size_t>(n * num_groups + g);
      const auto to = static_cast<size_t>(g * N + permuted_output(n));
      const int factor = weight.factors[from], zero = -(factor * weight.zeros[from]);
      HALLEY_CHECK(factor >= 1 && factor <= 127 && zero >= -128, name, n, g, factor, zero);
      scales[to] = static_cast<int8_t>(factor);
      zeros[to] = static_cast<int8_t>(zero);
    }
  }
  tensors.push_back(written_tensor(name + ".s2_scales", DType::kI8, {num_groups, N}, scales));
  tensors.push_back(written_tensor(name + ".s2_zeros", DType::kI8, {num_groups, N}, zeros));
}

}  // namespace

std::vector<CheckpointTensor> encode_qoq(const std::string& name, const QuantizedWeight& weight) {
  check_sizes(weight);
  const int64_t N = weight.N, K = weight.K;
  const bool is_grouped = !weight.factors.empty();
  require_bits(name, weight, {4});
  if (weight.group_size != (is_grouped ? kTiledGroup : K)) {
    reject_to_write(
        name, "one group of all inputs, or groups of 128 with two levels of scales",
        str("groups of ", weight.group_size, " with ", is_grouped ? "two levels" : "one level"));
  }
  require_multiple(name, "outputs (N)", N, kCodeTile);
  require_multiple(name, "inputs (K)", K, is_grouped ? kTiledGroup : kCodeTile);
  require_consecutive_groups(name, weight);
  std::vector<CheckpointTensor> tensors = {
      written_tensor(name + ".qweight", DType::kI8, {N, K / 2}, tiled_codes(weight)),
      written_f16(name + ".s1_scales", {N}, is_grouped ? weight.channel_scales : weight.scales)};
  if (is_grouped) {
    HALLEY_CHECK(weight.factors.size() == weight.scales.size(), weight.factors.size());
    HALLEY_CHECK(static_cast<int64_t>(weight.channel_scales.size()) == N, N);
    add_second_level(name, weight, tensors);
  } else {
    tensors.push_back(scaled_zeros(name, weight));
  }
  return tensors;
}

OrderedJson qoq_declaration(const WrittenFormat& format) {
  reject_own_settings(format, "qoq");
  if (format.group_size != 0 && format.group_size != kTiledGroup) {
    throw UnsupportedError(str("qoq: expected per-channel scales or groups of ", kTiledGroup,
                               ", got groups of ", format.group_size, ". Choose one of them."));
  }
  return {{"quant_method", "qoq"},
          {"wbits", format.bits},
          {"group_size", format.group_size == 0 ? -1 : format.group_size},
          {"kv_bits", format.kv_bits},
          {"modules_to_not_convert", dense_layers(format)}};
}

}  // namespace halley
