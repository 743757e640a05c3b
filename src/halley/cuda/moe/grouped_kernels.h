// Launches of the grouped product, one for each type and shape of tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/core/dtype.h"
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
  int64_t num_slots = 0;
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  Activation activation = Activation::kSilu;
  /// Two neighbours of y can be written at once.
  bool is_in_pairs = false;
};

/// Of kF16 or kBf16, and a shape of grouped_tiles.h. The instances are listed in CMakeLists.txt.
template <DType kType, typename Shape>
void launch_grouped(const CudaContext& context, const GroupedParams& params);

}  // namespace halley::cuda
