// Full-precision weights from a checkpoint's row-major tensors into the packed layouts, and back.
#pragma once

#include <span>

#include "halley/core/exec_context.h"
#include "halley/core/packed_weight.h"
#include "halley/core/tensor.h"

namespace halley {

/// The layout that keeps the element type: f16 -> kF16Panel, bf16 -> kBf16PairPanel,
/// f32 -> kF32Panel. Throws UnsupportedError for another type.
PackedLayout dense_layout_for(DType dtype);

/// Packs parts [N_i, K] of one dtype, one below the other, into one weight [sum N_i, K]. Exact:
/// no element changes.
PackedWeight pack_dense(ExecContext& context, std::span<const TensorView> parts);

/// Row n of the weight as f32, in low precision the values that it multiplies; out has num_inputs()
/// elements, of which those that input_perm does not pick are left as they are.
void unpack_row(const PackedWeight& weight, int64_t n, float* out,
                Precision precision = Precision::kFull);

}  // namespace halley
