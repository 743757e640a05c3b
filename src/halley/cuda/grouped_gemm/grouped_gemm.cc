#include "halley/cuda/grouped_gemm/grouped_gemm.h"

#include <limits>

#include "halley/base/check.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/moe/moe_routing.h"

namespace halley::cuda {

const char* name_of(GroupedKind kind) {
  if (!is_rows(kind)) return name_of(mixed_kind(kind));
  if (is_float_rows(kind)) return name_of(input_dtype(kind));
  return kind == GroupedKind::kS8 ? "s8" : "e4m3";
}

DType input_dtype(GroupedKind kind) {
  switch (kind) {
    case GroupedKind::kU4F16:
    case GroupedKind::kU8F16:
    case GroupedKind::kF16:
      return DType::kF16;
    case GroupedKind::kU4Bf16:
    case GroupedKind::kU8Bf16:
    case GroupedKind::kBf16:
      return DType::kBf16;
    case GroupedKind::kE4m3:
      return DType::kF8E4M3;
    case GroupedKind::kU4S8:
    case GroupedKind::kU4GroupS8:
    case GroupedKind::kS8:
      return DType::kI8;
  }
  HALLEY_CHECK(false, static_cast<int>(kind));
}

GroupedBaseArguments base_arguments(const GroupedGemm& gemm, const Matrix& y) {
  return {.slot_row = gemm.slot_row,
          .expert_begin = gemm.expert_begin,
          .weights = gemm.weights,
          .num_experts = static_cast<int>(gemm.num_experts),
          .num_outputs = static_cast<int>(y.num_cols),
          .num_groups = is_rows(gemm.kind) ? 0 : chunk_groups(gemm.group_size),
          .num_slots = y.num_rows,
          .x_scales = gemm.x_scales,
          .y = y.data,
          .y_stride_bytes = y.row_stride * bits_of(y.dtype) / 8,
          .is_y_bf16 = y.dtype == DType::kBf16,
          .epilogue = gemm.epilogue,
          .activation = gemm.activation};
}

void check_grouped_gemm(const GroupedGemm& gemm, const Matrix& y) {
  const ConstMatrix& x = gemm.x;
  HALLEY_CHECK(x.dtype == input_dtype(gemm.kind), x.dtype, gemm.kind);
  HALLEY_CHECK(y.dtype == DType::kF16 || y.dtype == DType::kBf16, y.dtype);
  HALLEY_CHECK(has_scales(gemm.kind) || y.dtype == x.dtype, x.dtype, y.dtype);
  HALLEY_CHECK(gemm.num_experts >= 1 && gemm.num_experts <= kExpertsMax, gemm.num_experts);
  constexpr int64_t kIntMax = std::numeric_limits<int>::max();
  HALLEY_CHECK(x.num_cols >= 1 && x.num_cols < kIntMax / 4 && y.num_cols < kIntMax / 4 &&
                   y.num_rows < kIntMax / 2,
               x.num_cols, y.num_cols, y.num_rows);
  HALLEY_CHECK(row_alignment(x) == kPieceBytes, x.row_stride);
}

}  // namespace halley::cuda
