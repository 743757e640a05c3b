// The grouped GEMM of quantized weights by mma.sync, for few slots. See README.md in this folder.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/grouped_gemm/grouped_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// y[s] = epilogue(x[slot_row[s]] W_e^T + bias_e) for the slots s of each expert e, of weights that
/// are quantized.
/// Shapes    y [num_slots, N] of f16 or bf16, that of x where x is not quantized
/// Requires  compute capability 9.0, K >= 1; rows of x and of weights at multiples of 16 bytes
/// Numerics  s8 exact in s32, scaled as mma_gemm() (cuda/mma_gemm) does; e4m3 in f32; 16-bit kinds
///           multiply q - zero exactly and scale f32 accumulators group by group; y is rounded
///           once, behind the epilogue
/// Runs in a fixed grid: group sizes are read on the device, and the slots that an expert has on
/// average choose the tile on the host.
void quantized_grouped_gemm(const CudaContext& context, const GroupedGemm& gemm, Matrix y);

}  // namespace halley::cuda
