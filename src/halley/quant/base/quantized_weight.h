// A linear layer's weight as a quantization method leaves it, before a format's module gives it the
// layout of its files.
//
// Terms: a code is a quantized value, an integer of `bits` bits (qweight); a grid is the scale and
// the zero point of a group, which give the values that its codes can stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// One stored weight [N, K], quantized per group of inputs:
///   w[n, k] = scales[n, g] * (codes[n, k] - zeros[n, g]), g = group of input k.
struct QuantizedWeight {
  int64_t N = 0;
  int64_t K = 0;
  int bits = 4;                // codes lie in 0 ... 2^bits - 1
  int64_t group_size = 0;      // inputs of a group; K: per-channel
  bool is_symmetric = false;   // every zero point is 2^(bits-1)
  std::vector<uint8_t> codes;  // [N, K]
  /// [N, num_groups()], above zero and representable in f16, except where `factors` is set: then
  /// scales = channel_scales * factors.
  std::vector<float> scales;
  std::vector<uint8_t> zeros;  // [N, num_groups()], 0 ... 2^bits - 1
  /// g_idx: the group of each input [K] where the inputs of a group are not consecutive (GPTQ's
  /// act-order without static groups); empty: input k is in group k / group_size.
  std::vector<int32_t> group_of_input;
  /// Two levels of scales (QoQ): scales[n, g] = channel_scales[n] * factors[n, g], where
  /// (code - zero) * factor lies in [-128, 127]. Both vectors are empty for a weight with one
  /// level.
  std::vector<float> channel_scales;  // [N], representable in f16
  std::vector<uint8_t> factors;       // [N, num_groups()], 1 ... 127

  int64_t num_groups() const { return (K + group_size - 1) / group_size; }
  int64_t group_of(int64_t k) const {
    return group_of_input.empty() ? k / group_size : group_of_input[static_cast<size_t>(k)];
  }
};

/// Dequantizes row n into `row` [K] f32.
void dequantize_row(const QuantizedWeight& weight, int64_t n, std::span<float> row);

/// A tensor to be written into a checkpoint.
struct CheckpointTensor {
  TensorInfo info;
  std::vector<std::byte> data;
};

}  // namespace halley
