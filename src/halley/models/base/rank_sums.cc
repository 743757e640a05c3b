#include "halley/models/base/rank_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "halley/base/check.h"

namespace halley {
namespace {

/// The columns from `begin` on are `own`, the others zero.
void place_columns(ConstMatrix own, int64_t begin, Matrix all) {
  for (int64_t m = 0; m < all.num_rows; ++m) {
    float* row = all.row<float>(m);
    std::fill_n(row, all.num_cols, 0.0f);
    std::copy_n(own.row<float>(m), own.num_cols, row + begin);
  }
}

/// ExecContext::row_magnitudes of this rank's columns.
std::vector<float> magnitudes_of(ConstMatrix x) {
  std::vector<float> magnitudes(static_cast<size_t>(x.num_rows));
  for (int64_t m = 0; m < x.num_rows; ++m) {
    float largest = 0;
    for (int64_t k = 0; k < x.num_cols; ++k) {
      const float magnitude = std::fabs(x.row<float>(m)[k]);
      // Not written as "greater", so that a NaN is found.
      if (!(magnitude <= largest)) largest = magnitude;
      if (std::isnan(largest)) break;
    }
    magnitudes[static_cast<size_t>(m)] =
        std::isnan(largest) ? std::numeric_limits<float>::infinity() : largest;
  }
  return magnitudes;
}

}  // namespace

void sum_over_ranks(Communicator& ranks, Matrix rows) {
  HALLEY_CHECK(rows.row_stride == rows.num_cols, rows.row_stride, rows.num_cols);
  ranks.all_reduce_sum({rows.data, rows.num_rows * rows.num_cols, DType::kF32});
}

void run_input_slice(const DecoderStep& step, const LinearSpec& spec, const LinearOp& op,
                     ConstMatrix x, Matrix y) {
  if (step.ranks == nullptr || !spec.inputs) return run_linear(step, spec, op, x, y);
  if (op.num_inputs() != x.num_cols) {  // it picks its inputs from those of all ranks
    const Matrix all = step.workspace.take(Slot::kGathered, x.num_rows, op.num_inputs());
    place_columns(x, spec.inputs->begin, all);
    sum_over_ranks(*step.ranks, all);
    return op.run(step.context, all, y);
  }
  ExecContext context = step.context;
  std::vector<float> magnitudes;
  if (op.has_row_scales(context.precision)) {
    magnitudes = magnitudes_of(x);
    step.ranks->all_reduce_max({magnitudes.data(), x.num_rows, DType::kF32});
    context.row_magnitudes = magnitudes;
  }
  op.run(context, x, y);
}

void gather_logits(const DecoderStep& step, ConstMatrix own, Matrix logits) {
  place_columns(own, step.config.share.vocabulary.begin, logits);
  sum_over_ranks(*step.ranks, logits);
}

}  // namespace halley
