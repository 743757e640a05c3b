// The arguments of a launch of the grouped GEMM of quantized weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/grouped_gemm/grouped_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct GroupedArguments : GroupedBaseArguments {
  const uint8_t* x = nullptr;
  int64_t x_stride_bytes = 0;
  int x_row_bytes = 0;            // of K inputs
  int second_half_block = 0;      // row blocks before the second half
  int64_t weight_step_bytes = 0;  // from a packed tile, or a row, to the next
  int group_shift = 0;            // log2 of a group's steps of 32 inputs
  int num_chunks = 0;             // ceil(K / 128)
  /// Two neighbours of y can be written at once.
  bool is_in_pairs = false;
};

/// The instances are listed in CMakeLists.txt.
template <GroupedKind kKind, class Shape>
void launch_quantized_grouped(const CudaContext& context, const GroupedArguments& args);

}  // namespace halley::cuda
