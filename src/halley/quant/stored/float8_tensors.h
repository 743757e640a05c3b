// Rounding a weight to 8-bit floats, and the tensors in which the formats that have them agree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/quant/base/quantized_weight.h"

namespace halley {

/// Numbers that share a scale.
enum class Float8Scales : uint8_t { kTensor, kOutput };

/// The scale with which numbers up to `max_abs` fill e4m3: max_abs / 448, at least 2^-100, the
/// smallest that readers take; 1 for zeros. Requires a finite number of at least 0.
float e4m3_scale(float max_abs);

/// A weight [N, K] rounded to nearest: <name>.weight f8_e4m3 [N, K] and <name>.weight_scale f32,
/// [] or [N, 1]; with the scale of static activations (above zero, as e4m3_scale() has it)
/// <name>.input_scale f32 []. Throws CheckpointError that names layer and place of a number that is
/// NaN or infinite.
std::vector<CheckpointTensor> encode_float8(const std::string& name, std::span<const float> weight,
                                            int64_t K, Float8Scales scales,
                                            std::optional<float> input_scale);

}  // namespace halley
