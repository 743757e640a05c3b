// Rounds a weight to 8-bit floats, and makes the tensors of compressed-tensors' float-quantized.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/quant/base/quantized_weight.h"

namespace halley {

/// Weights that share a scale: per-tensor, per-channel.
enum class Float8Scales : uint8_t { kTensor, kOutput };

/// The scale that maps `max_abs` to the largest e4m3 value: max_abs / 448, at least 2^-100, the
/// smallest that readers take; 1 for zero. Requires finite max_abs >= 0.
float e4m3_scale(float max_abs);

/// Rounds a weight [N, K] to nearest: <name>.weight f8_e4m3 [N, K] and <name>.weight_scale f32,
/// [1] or [N, 1]; with the scale of static activations (above zero, as e4m3_scale() has it)
/// <name>.input_scale f32 [1]. transformers compares these shapes with its own. Throws
/// CheckpointError with layer and index of a weight that is NaN or infinite.
std::vector<CheckpointTensor> encode_float8(const std::string& name, std::span<const float> weight,
                                            int64_t K, Float8Scales scales,
                                            std::optional<float> input_scale);

}  // namespace halley
