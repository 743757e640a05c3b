// The operands of a grouped GEMM: tokens times the weights of their experts, all experts in one
// launch, weights in the bits that they are stored in. See README.md in this folder.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
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

struct GroupedGemm {
  GroupedKind kind = GroupedKind::kU4F16;
  /// [M, K], or [num_slots, K]: i8, f8_e4m3, f16 or bf16 as the kind says.
  ConstMatrix x = {};
  /// Quantized x has, by its rows, x_scales, and x_sums where weights have offsets.
  RowScales x_scales = {};
  /// The row of each slot; null: rows are slots.
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
  /// Rows of weights lie so many bytes apart: quantized_grouped_gemm() reads it.
  int64_t weight_stride = 0;
  /// For each of `weights` that is rows, in device memory: wgmma_grouped_gemm() reads them.
  const CUtensorMap* maps = nullptr;
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  Activation activation = Activation::kSilu;
  /// A row's bits do not depend on how many slots there are. Of s8 they never do.
  bool is_batch_invariant = false;
};

/// A launch of either kernel passes this on.
struct GroupedBaseArguments {
  const int32_t* slot_row = nullptr;
  const int32_t* expert_begin = nullptr;
  const GroupedWeight* weights = nullptr;
  int num_experts = 0, num_outputs = 0;
  int num_groups = 0;  // of a packed tile
  int64_t num_slots = 0;
  RowScales x_scales = {};
  std::byte* y = nullptr;
  int64_t y_stride_bytes = 0;
  bool is_y_bf16 = false;
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  Activation activation = Activation::kSilu;
};
GroupedBaseArguments base_arguments(const GroupedGemm& gemm, const Matrix& y);

/// Checks what both kernels ask of types and sizes; y [num_slots, N].
void check_grouped_gemm(const GroupedGemm& gemm, const Matrix& y);

}  // namespace halley::cuda
