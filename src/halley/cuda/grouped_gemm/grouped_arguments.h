// The arguments of a launch of the grouped GEMM of quantized weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/grouped_gemm/grouped_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct GroupedArguments {
  const uint8_t* x = nullptr;
  int64_t x_stride_bytes = 0;
  int x_row_bytes = 0;  // of K inputs
  const int32_t* slot_row = nullptr;
  const int32_t* expert_begin = nullptr;
  const GroupedWeight* weights = nullptr;
  int second_half_block = 0;      // row blocks before the second half
  int64_t weight_step_bytes = 0;  // from a packed tile, or a row, to the next
  int num_groups = 0;             // of a packed tile
  int group_shift = 0;            // log2 of a group's steps of 32 inputs
  int num_experts = 0, num_outputs = 0;
  int num_chunks = 0;  // ceil(K / 128)
  int64_t num_slots = 0;
  RowScales x_scales = {};
  std::byte* y = nullptr;
  int64_t y_stride_bytes = 0;
  bool is_y_bf16 = false;
  /// Two neighbours of y can be written at once.
  bool is_in_pairs = false;
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  Activation activation = Activation::kSilu;
};

/// The instances are listed in CMakeLists.txt.
template <GroupedKind kKind, class Shape>
void launch_quantized_grouped(const CudaContext& context, const GroupedArguments& args);

}  // namespace halley::cuda
