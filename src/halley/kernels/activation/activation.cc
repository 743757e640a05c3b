#include "halley/kernels/activation/activation.h"

#include "halley/base/check.h"
#include "halley/kernels/activation/activation_rows.h"
#include "halley/kernels/base/row_tasks.h"

namespace halley {
namespace {

// One exp and one division cost about as much as four loads and stores.
constexpr int64_t kCostPerElement = 4;

}  // namespace

void gated_activation(ExecContext& context, Activation activation, ConstMatrix gate_up, Matrix y) {
  HALLEY_CHECK(gate_up.num_rows == y.num_rows, gate_up.num_rows, y.num_rows);
  HALLEY_CHECK(gate_up.num_cols == 2 * y.num_cols, gate_up.num_cols, y.num_cols);
  const int64_t num_cols = y.num_cols;
  const ConstMatrix gate = gate_up.cols(0, num_cols);
  const ConstMatrix up = gate_up.cols(num_cols, 2 * num_cols);
  for_row_ranges(context, y.num_rows, kCostPerElement * num_cols, [&](int64_t begin, int64_t end) {
    activate_rows(activation, gate.rows(begin, end), up.rows(begin, end), y.rows(begin, end));
  });
}

void apply_activation(ExecContext& context, Activation activation, Matrix x) {
  for_row_ranges(context, x.num_rows, kCostPerElement * x.num_cols,
                 [&](int64_t begin, int64_t end) {
                   const Matrix rows = x.rows(begin, end);
                   activate_rows(activation, rows, {}, rows);
                 });
}

void scale_rows(ExecContext& context, float factor, Matrix x) {
  for_row_ranges(context, x.num_rows, x.num_cols, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      float* row = x.row<float>(m);
      for (int64_t i = 0; i < x.num_cols; ++i) row[i] *= factor;
    }
  });
}

void apply_soft_cap(ExecContext& context, float cap, Matrix x) {
  HALLEY_CHECK(cap > 0, cap);
  for_row_ranges(context, x.num_rows, kCostPerElement * x.num_cols,
                 [&](int64_t begin, int64_t end) { soft_cap_rows(cap, x.rows(begin, end)); });
}

}  // namespace halley
