// Reads the tensors of one part: 4-bit codes in packed order, and how its activations are
// quantized.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// Inputs that share a scale, in the weight (per-group) as in activations (per-token, per-block).
inline constexpr int64_t kFmpqBlock = 128;
/// The zero point of all groups.
inline constexpr int kFmpqZero = 8;

/// Reads <part>.qweight, .scales, .block_bits, .activation_clip and, where present, .input_order.
/// Throws CheckpointError where one is missing or of another type or shape, where 4-bit blocks
/// precede 8-bit ones, the clip is no ratio or `input_order` no permutation; check_data() where a
/// scale is not finite and above zero or the unused half of the last byte is not zero.
std::unique_ptr<StoredWeight> open_block_weight(const TensorSource& source,
                                                const LinearSpec::Part& part, int64_t in_features);

/// The tensors that open_block_weight() needs.
std::vector<TensorInfo> expected_block_tensors(const LinearSpec::Part& part, int64_t in_features);

}  // namespace halley
