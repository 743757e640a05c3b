#include "halley/kernels/norm/norm.h"

#include "halley/base/check.h"
#include "halley/kernels/base/row_tasks.h"
#include "halley/kernels/norm/norm_rows.h"

namespace halley {
namespace {

void check_same_shape(ConstMatrix x, ConstMatrix y) {
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols == y.num_cols, x.num_rows, x.num_cols,
               y.num_rows, y.num_cols);
}

}  // namespace

void rms_norm(ExecContext& context, ConstMatrix x, const float* weight, float weight_offset,
              float epsilon, Matrix y) {
  check_same_shape(x, y);
  HALLEY_CHECK(x.num_cols >= 1, x.num_cols);
  const NormParameters parameters{weight, nullptr, weight_offset, epsilon};
  for_row_ranges(context, x.num_rows, x.num_cols, [&](int64_t begin, int64_t end) {
    rms_norm_rows(parameters, x.num_cols, x.rows(begin, end), y.rows(begin, end));
  });
}

void rms_norm_heads(ExecContext& context, Matrix x, int64_t head_dim, const float* weight,
                    float weight_offset, float epsilon) {
  HALLEY_CHECK(head_dim >= 1 && x.num_cols % head_dim == 0, x.num_cols, head_dim);
  const NormParameters parameters{weight, nullptr, weight_offset, epsilon};
  for_row_ranges(context, x.num_rows, x.num_cols, [&](int64_t begin, int64_t end) {
    const Matrix rows = x.rows(begin, end);
    rms_norm_rows(parameters, head_dim, rows, rows);
  });
}

void layer_norm(ExecContext& context, ConstMatrix x, const float* weight, const float* bias,
                float epsilon, Matrix y) {
  check_same_shape(x, y);
  HALLEY_CHECK(x.num_cols >= 1, x.num_cols);
  const NormParameters parameters{weight, bias, 0.0f, epsilon};
  for_row_ranges(context, x.num_rows, x.num_cols, [&](int64_t begin, int64_t end) {
    layer_norm_rows(parameters, x.rows(begin, end), y.rows(begin, end));
  });
}

void add_rows(ExecContext& context, ConstMatrix x, Matrix y) {
  check_same_shape(x, y);
  for_row_ranges(context, x.num_rows, x.num_cols, [&](int64_t begin, int64_t end) {
    add_rows_range(x.rows(begin, end), y.rows(begin, end));
  });
}

}  // namespace halley
