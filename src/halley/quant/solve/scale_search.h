// Per-channel smoothing factors of linear layers' inputs, which move quantization difficulty
// between activations and weights: AWQ's search, SmoothQuant, QoQ's output smoothing and
// SmoothAttention.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/solve/input_stats.h"

namespace halley {

/// Quantizes and dequantizes in place a weight [N, K] f32 whose columns were multiplied by
/// `factors` [K].
using FakeQuantize = std::function<void(Matrix w, std::span<const float> factors)>;

struct AwqScales {
  std::vector<float> factors;  // [K]: weights times, inputs divided by
  double ratio = 0;            // the exponent that won
  double error = 0;            // its mean squared output error on stats.rows
  double error_unscaled = 0;   // without factors
};

/// AWQ (Lin et al. 2023): s = mean|x|^a / sqrt(max * min of these), a = 0, 1/20, ..., 19/20; the
/// one with the least squared error of all weights' outputs on stats.rows, where the weights
/// are quantize(w * s) / s; the first of equals, so that without rows no channel is scaled. As in
/// AutoAWQ, mean|x|^a is at least 1e-4; channels without activations get 1. `weights`: those that
/// share the input, each [N_i, K] f32.
/// `groups` [K] joins channels that must share a factor (the largest mean counts): the same number,
/// from 0 up, in a group; empty: none.
AwqScales search_awq_scales(ExecContext& context, std::span<const ConstMatrix> weights,
                            const InputStats& stats, const FakeQuantize& quantize,
                            std::span<const int32_t> groups = {});

/// SmoothQuant (Xiao et al. 2022): s = max|x|^alpha / max|w|^(1 - alpha), 1e-5 to 1e5, over all
/// `weights`, alpha in 0 ... 1; inputs are divided by s. Channels whose inputs or weights are all
/// zero get 1. `groups` as above. [K]
std::vector<float> smooth_factors(std::span<const ConstMatrix> weights, const InputStats& stats,
                                  double alpha, std::span<const int32_t> groups = {});

/// 1 / factors: what the inputs are multiplied by.
std::vector<float> inverse_of(std::span<const float> factors);

/// QoQ's SmoothAttention (Lin et al. 2024): lambda = max|k|^alpha, 1e-5 to 1e5, alpha in 0 ... 1,
/// of the channels [D] of one key head; the two of a rotary pair (i, i + rotary_dim / 2) share the
/// larger one. Keys are divided by it. Channels that are always zero get 1.
std::vector<float> key_smooth_factors(std::span<const float> key_abs_max, int64_t rotary_dim,
                                      double alpha);

}  // namespace halley
