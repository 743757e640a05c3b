#include "halley/cuda/gemm/few_rows.h"

#include <limits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/few_rows_launch.h"
#include "halley/cuda/gemm/lt_problem.h"

namespace halley::cuda {

void gemm_few_rows(const CudaContext& context, const FewRowsOperands& operands, Matrix y) {
  const ConstMatrix& x = operands.x;
  const ConstMatrix& w = operands.w;
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols == w.num_cols && w.num_rows == y.num_cols &&
                   x.dtype == w.dtype,
               x.num_rows, x.num_cols, w.num_rows, w.num_cols, y.num_rows, y.num_cols);
  HALLEY_CHECK(x.num_rows <= kFewRowsMax, x.num_rows);
  HALLEY_CHECK(row_alignment(x) == 16 && row_alignment(w) == 16, x.row_stride, w.row_stride);
  if (y.num_rows == 0 || y.num_cols == 0) return;
  const int64_t element_bytes = bits_of(x.dtype) / 8;
  const int64_t row_bytes = x.num_cols * element_bytes;
  HALLEY_CHECK(row_bytes % 16 == 0 && row_bytes < std::numeric_limits<int>::max() / 2, row_bytes);
  const FewRowsArguments args = {.x = reinterpret_cast<const uint8_t*>(x.data),
                                 .w = reinterpret_cast<const uint8_t*>(w.data),
                                 .y = y.data,
                                 .M = static_cast<int>(x.num_rows),
                                 .row_bytes = static_cast<int>(row_bytes),
                                 .N = w.num_rows,
                                 .x_row_bytes = x.row_stride * element_bytes,
                                 .w_row_bytes = w.row_stride * element_bytes,
                                 .y_stride = y.row_stride,
                                 .y_dtype = y.dtype,
                                 .scales = operands.scales,
                                 .bias = operands.bias};
  switch (x.dtype) {
    case DType::kF16:
      return launch_few_rows_f16(context, args);
    case DType::kBf16:
      return launch_few_rows_bf16(context, args);
    case DType::kF8E4M3:
      return launch_few_rows_e4m3(context, args);
    case DType::kI8:
      return launch_few_rows_s8(context, args);
    default:
      HALLEY_CHECK(false, name_of(x.dtype));
  }
}

}  // namespace halley::cuda
