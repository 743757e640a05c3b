#include "halley/cuda/moe/grouped_gemm.h"

#include <limits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/moe/grouped_kernels.h"
#include "halley/cuda/moe/grouped_tiles.h"

namespace halley::cuda {
namespace {

/// What cp.async and ldmatrix ask for.
constexpr int64_t kAlignment = 16;

bool is_aligned(const void* address, int64_t row_bytes, int64_t to) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(to) == 0 &&
         row_bytes % to == 0;
}

}  // namespace

void grouped_gemm(const CudaContext& context, const GroupedGemm& gemm, Matrix y) {
  const ConstMatrix& x = gemm.x;
  HALLEY_CHECK((x.dtype == DType::kF16 || x.dtype == DType::kBf16) && y.dtype == x.dtype,
               name_of(x.dtype), name_of(y.dtype));
  HALLEY_CHECK(x.num_cols >= 1 && gemm.num_experts >= 1 && gemm.num_experts <= kExpertsMax,
               x.num_cols, gemm.num_experts);
  constexpr int64_t kIntMax = std::numeric_limits<int>::max();
  HALLEY_CHECK(x.num_cols < kIntMax / 2 && y.num_cols < kIntMax / 2 && y.num_rows < kIntMax / 2,
               x.num_cols, y.num_cols, y.num_rows);
  if (y.num_rows == 0 || y.num_cols == 0) return;
  constexpr int64_t kElementBytes = 2;
  const GroupedParams params = {
      .x = x.data,
      .x_row_bytes = x.row_stride * kElementBytes,
      .slot_row = gemm.slot_row,
      .expert_begin = gemm.expert_begin,
      .weights = gemm.weights,
      .weight_row_bytes = gemm.weight_stride * kElementBytes,
      .biases = gemm.biases,
      .y = y.data,
      .y_row_bytes = y.row_stride * kElementBytes,
      .num_experts = static_cast<int>(gemm.num_experts),
      .num_outputs = static_cast<int>(y.num_cols),
      .num_inputs = static_cast<int>(x.num_cols),
      .num_slots = y.num_rows,
      .epilogue = gemm.epilogue,
      .activation = gemm.activation,
      .is_in_pairs = y.num_cols % 2 == 0 &&
                     is_aligned(y.data, y.row_stride * kElementBytes, 2 * kElementBytes)};
  HALLEY_CHECK(is_aligned(x.data, params.x_row_bytes, kAlignment) &&
                   params.weight_row_bytes % kAlignment == 0,
               x.row_stride, gemm.weight_stride);
  const bool is_narrow = y.num_rows <= kNarrowSlotsMax * gemm.num_experts;
  if (x.dtype == DType::kF16) {
    return is_narrow ? launch_grouped<DType::kF16, NarrowShape>(context, params)
                     : launch_grouped<DType::kF16, WideShape>(context, params);
  }
  is_narrow ? launch_grouped<DType::kBf16, NarrowShape>(context, params)
            : launch_grouped<DType::kBf16, WideShape>(context, params);
}

}  // namespace halley::cuda
