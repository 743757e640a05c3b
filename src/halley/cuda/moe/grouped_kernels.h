// Launches of the grouped product, one for each type and shape of tiles; each is a source file of
// its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "halley/cuda/moe/grouped_gemm.h"

namespace halley::cuda {

struct GroupedParams {
  const std::byte* x = nullptr;
  int64_t x_row_bytes = 0;
  const int32_t* slot_row = nullptr;
  const int32_t* expert_begin = nullptr;
  const std::byte* const* weights = nullptr;
  int64_t weight_row_bytes = 0;
  const float* const* biases = nullptr;
  std::byte* y = nullptr;
  int64_t y_row_bytes = 0;
  int num_experts = 0, num_outputs = 0, num_inputs = 0;
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  Activation activation = Activation::kSilu;
  /// Two neighbours of y can be written at once.
  bool is_in_pairs = false;
};

/// Of a launch.
struct GroupedLaunch {
  int64_t num_slots = 0;
  int num_multiprocessors = 0;
  cudaStream_t stream = nullptr;
};

void launch_grouped_narrow_f16(const GroupedParams& params, const GroupedLaunch& launch);
void launch_grouped_narrow_bf16(const GroupedParams& params, const GroupedLaunch& launch);
void launch_grouped_wide_f16(const GroupedParams& params, const GroupedLaunch& launch);
void launch_grouped_wide_bf16(const GroupedParams& params, const GroupedLaunch& launch);

}  // namespace halley::cuda
