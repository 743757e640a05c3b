// The grouped GEMM of quantized weights: tokens times the weights of their experts, all experts in
// one launch, weights in the bits that they are stored in. See README.md in this folder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// One expert's weight, or one half of it; all in device memory.
struct GroupedWeight {
  /// Packed tiles (mixed_layout.h) from the weight's first output on, or the first of the rows.
  const std::byte* data = nullptr;
  /// Kinds with scales have them, [N], and offsets, [N] or null.
  const float* scales = nullptr;
  const float* offsets = nullptr;
  const float* bias = nullptr;  // [N] f32, or null
};

/// The part of a weight from an output on. `row_bytes`: of rows; of packed tiles 0, whose data stay
/// where they are (QuantizedGroupedGemm::second_half_begin).
inline GroupedWeight from_output(GroupedWeight weight, int64_t begin, int64_t row_bytes) {
  weight.data += begin * row_bytes;
  if (weight.scales != nullptr) weight.scales += begin;
  if (weight.offsets != nullptr) weight.offsets += begin;
  if (weight.bias != nullptr) weight.bias += begin;
  return weight;
}

struct QuantizedGroupedGemm {
  GroupedKind kind = GroupedKind::kU4F16;
  /// [M, K], or [num_slots, K]: i8, f8_e4m3, f16 or bf16 as the kind says.
  ConstMatrix x = {};
  /// Quantized x has, by its rows, x_scales, and x_sums where weights have offsets.
  RowScales x_scales = {};
  /// The row of x of each slot; null: x has slots.
  const int32_t* slot_row = nullptr;
  /// [E + 1] in device memory: expert e has slots expert_begin[e] to expert_begin[e + 1].
  const int32_t* expert_begin = nullptr;
  int64_t num_experts = 0;
  /// [E], or [E, 2] with kGated (gate and other factor), in device memory.
  const GroupedWeight* weights = nullptr;
  /// Packed tiles: outputs of the weight's data before those of the second half, a multiple of
  /// kHalfOutputsMin; 0 where each half has a weight of its own.
  int64_t second_half_begin = 0;
  int group_size = kChunkInputs;  // of packed tiles, as stored
  int64_t weight_stride = 0;      // of rows: bytes from one to the next
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  Activation activation = Activation::kSilu;
  /// A row's bits do not depend on how many slots there are. Of s8 they never do.
  bool is_batch_invariant = false;
};

/// y[s] = epilogue(x[slot_row[s]] W_e^T + bias_e) for the slots s of each expert e.
/// Shapes    y [num_slots, N] of f16 or bf16, that of x where x is not quantized
/// Requires  compute capability 9.0, K >= 1; rows of x and of weights begin at multiples of 16
/// bytes Numerics  s8 exact in s32, scaled as mma_gemm() (cuda/mma_gemm) does; e4m3 in f32; 16-bit
/// kinds
///           multiply q - zero exactly and scale f32 accumulators group by group; y is rounded
///           once, behind the epilogue
/// Runs in a fixed grid: group sizes are read on the device, and the slots that an expert has on
/// average choose the tile on the host.
void quantized_grouped_gemm(const CudaContext& context, const QuantizedGroupedGemm& gemm, Matrix y);

}  // namespace halley::cuda
