// The grouped GEMM of all weights by wgmma, for experts with many slots. See README.md in this
// folder.
#pragma once

#include <cuda.h>

#include "halley/core/matrix.h"
#include "halley/cuda/grouped_gemm/grouped_gemm.h"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// The map of rows [N, K] of a weight, or of one half of it.
CUtensorMap wgmma_rows_map(ConstMatrix rows);

/// Whether kernels of `kind` take the sums of a row's values also where weights have no offsets.
constexpr bool needs_row_sums(GroupedKind kind) {
  return !is_rows(kind) && mixed_kind(kind) == MixedKind::kU4GroupS8;
}

/// y[s] = epilogue(x[s] W_e^T + bias_e) for the slots s of each expert e. x [num_slots, K] lies in
/// the order of slots, slot_row has the rows of its scales; or x [1, K] is the row of all slots, of
/// which an expert then has one at most. Shapes    y [num_slots, N] of f16 or bf16, that of x where
/// x is not quantized Requires  compute capability 9.0, K >= 1; rows of x begin at multiples of 16
/// bytes Numerics  s8 exact in s32, scaled as quantized_grouped_gemm(), whose bits it has; others
/// in f32,
///           e4m3 added to it every 128 inputs (the tensor cores keep 14 bits in between). A row's
///           bits do not depend on how many slots there are, but those of packed tiles with 16-bit
///           activations do: in larger tiles weights are rounded to 16 bits
/// Runs in a fixed grid: group sizes are read on the device.
void wgmma_grouped_gemm(const CudaContext& context, const GroupedGemm& gemm, Matrix y);

}  // namespace halley::cuda
