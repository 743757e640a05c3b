// The grouped GEMM by wgmma, for experts with many slots: tokens times the weights of their
// experts, all experts in one launch, weights in the bits that they are stored in. See README.md in
// this folder.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/grouped_gemm/quantized_grouped_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

struct WgmmaGroupedGemm {
  GroupedKind kind = GroupedKind::kU4F16;
  /// [num_slots, K], in the order of slots: i8, f8_e4m3, f16 or bf16 as the kind says. Or [1, K],
  /// the row of all slots, of which an expert then has one at most.
  ConstMatrix x = {};
  /// Quantized x has x_scales, and x_sums where weights have offsets and of kU4GroupS8: those of
  /// row slot_row[s], or of row s where slot_row is null.
  RowScales x_scales = {};
  const int32_t* slot_row = nullptr;
  /// [E + 1] in device memory: expert e has slots expert_begin[e] to expert_begin[e + 1].
  const int32_t* expert_begin = nullptr;
  int64_t num_experts = 0;
  /// [E], or [E, 2] with kGated (gate and other factor), in device memory.
  const GroupedWeight* weights = nullptr;
  /// For each of `weights` that is rows, in device memory: wgmma_rows_map().
  const CUtensorMap* maps = nullptr;
  /// As QuantizedGroupedGemm has it; a multiple of kHalfOutputs.
  int64_t second_half_begin = 0;
  int group_size = kChunkInputs;  // of packed tiles, as stored
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  Activation activation = Activation::kSilu;
};

/// The map of rows [N, K] of a weight, or of one half of it.
CUtensorMap wgmma_rows_map(ConstMatrix rows);

/// Whether kernels of `kind` take the sums of a row's values also where weights have no offsets.
constexpr bool needs_row_sums(GroupedKind kind) {
  return !is_rows(kind) && mixed_kind(kind) == MixedKind::kU4GroupS8;
}

/// y[s] = epilogue(x[s] W_e^T + bias_e) for the slots s of each expert e.
/// Shapes    y [num_slots, N] of f16 or bf16, that of x where x is not quantized
/// Requires  compute capability 9.0, K >= 1; rows of x begin at multiples of 16 bytes
/// Numerics  s8 exact in s32, scaled as quantized_grouped_gemm(), whose bits it has; others in f32,
///           e4m3 added to it every 128 inputs (the tensor cores keep 14 bits in between). A row's
///           bits do not depend on how many slots there are, but those of packed tiles with 16-bit
///           activations do: in larger tiles weights are rounded to 16 bits
/// Runs in a fixed grid: group sizes are read on the device.
void wgmma_grouped_gemm(const CudaContext& context, const WgmmaGroupedGemm& gemm, Matrix y);

}  // namespace halley::cuda
