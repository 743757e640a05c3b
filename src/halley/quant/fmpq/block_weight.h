// The tensors of one part: 4-bit codes in packed order, and what its activations are rounded to.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// Inputs that share a scale: of the weight, and of an activation.
inline constexpr int64_t kFmpqBlock = 128;
/// The zero of every code.
inline constexpr int kFmpqZero = 8;

/// <part>.qweight, scales, block_bits, activation_clip and, where it is there, input_perm. Throws
/// CheckpointError where one is missing or of another type or shape, where blocks are not of 8 and
/// then of 4 bits, the clip is no ratio or the order no permutation; check_data() where a scale is
/// not finite and above zero or the half of a byte behind the last input is not zero.
std::unique_ptr<StoredWeight> open_block_weight(const TensorSource& source,
                                                const LinearSpec::Part& part, int64_t in_features);

/// The tensors that open_block_weight() needs.
std::vector<TensorInfo> expected_block_tensors(const LinearSpec::Part& part, int64_t in_features);

}  // namespace halley
