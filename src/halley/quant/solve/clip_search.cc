#include "halley/quant/solve/clip_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/kernels/base/row_tasks.h"
#include "halley/kernels/linalg/linalg.h"

namespace halley {
namespace {

// Outputs that are worked on at a time: few enough that the errors stay in a cache between rounding
// and the GEMM, enough that packing the Gram block costs nothing.
constexpr int64_t kChunkOutputs = 512;
// Cost of rounding a weight through the rule's interface, in elementwise operations.
constexpr int64_t kRoundCost = 16;

/// The Gram matrix of each group's inputs.
class GroupGrams {
 public:
  GroupGrams(ExecContext& context, const InputStats& stats, int64_t group_size)
      : whole_(stats.gram_matrix()), K_(stats.K), group_size_(group_size) {
    if (whole_.num_rows > 0) return;
    blocks_.assign(static_cast<size_t>(ceil_div(K_, group_size) * group_size * group_size), 0.0f);
    for (int64_t g = 0; g < ceil_div(K_, group_size); ++g) {
      const ConstMatrix x = stats.row_matrix().cols(begin(g), end(g));
      add_gram(context, x, f32_matrix(block(g), x.num_cols, x.num_cols));
    }
  }

  int64_t begin(int64_t g) const { return g * group_size_; }
  int64_t end(int64_t g) const { return std::min(K_, (g + 1) * group_size_); }
  ConstMatrix at(int64_t g) const {
    if (whole_.num_rows > 0) return whole_.rows(begin(g), end(g)).cols(begin(g), end(g));
    const int64_t size = end(g) - begin(g);
    return f32_matrix(blocks_.data() + g * group_size_ * group_size_, size, size);
  }

 private:
  float* block(int64_t g) { return blocks_.data() + g * group_size_ * group_size_; }

  ConstMatrix whole_;
  int64_t K_;
  int64_t group_size_;
  std::vector<float> blocks_;  // where whole_ is empty
};

/// The quantization error at the output, group by group.
class RoundingErrors {
 public:
  RoundingErrors(ExecContext& context, ConstMatrix w, const InputStats& stats, int64_t group_size)
      : context_(context),
        w_(w),
        grams_(context, stats, group_size),
        num_groups_(ceil_div(w.num_cols, group_size)),
        errors_(static_cast<size_t>(kChunkOutputs * group_size)),
        weighted_(errors_.size()) {}

  /// [N, num_groups]
  void measure(const GridRule& rule, std::vector<double>& costs) {
    for (int64_t g = 0; g < num_groups_; ++g) {
      for (int64_t n = 0; n < w_.num_rows; n += kChunkOutputs) {
        measure_chunk(rule, n, g, costs);
      }
    }
  }

 private:
  void measure_chunk(const GridRule& rule, int64_t first, int64_t g, std::vector<double>& costs) {
    const int64_t num_outputs = std::min(kChunkOutputs, w_.num_rows - first);
    const int64_t size = grams_.end(g) - grams_.begin(g);
    const Matrix errors = f32_matrix(errors_.data(), num_outputs, size);
    const Matrix weighted = f32_matrix(weighted_.data(), num_outputs, size);
    for_row_ranges(context_, num_outputs, size * kRoundCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* weights = w_.row<float>(first + i) + grams_.begin(g);
        const Grid grid = rule.fit(first + i, g, {weights, static_cast<size_t>(size)});
        float* error = errors.row<float>(i);
        for (int64_t k = 0; k < size; ++k) {
          const int steps = rule.round(grid, weights[k]) - grid.zero;
          error[k] = grid.scale * static_cast<float>(steps) - weights[k];
        }
      }
    });
    multiply_transposed(context_, errors, grams_.at(g), weighted);
    for_row_ranges(context_, num_outputs, size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* error = errors.row<float>(i);
        const float* weighted_error = weighted.row<float>(i);
        double cost = 0;
        for (int64_t k = 0; k < size; ++k) {
          cost += static_cast<double>(error[k]) * static_cast<double>(weighted_error[k]);
        }
        costs[static_cast<size_t>((first + i) * num_groups_ + g)] = cost;
      }
    });
  }

  ExecContext& context_;
  ConstMatrix w_;
  GroupGrams grams_;
  int64_t num_groups_;
  std::vector<float> errors_;    // [chunk, group_size]
  std::vector<float> weighted_;  // errors times the Gram block
};

void share_over_row(std::span<double> costs) {
  double sum = 0;
  for (const double cost : costs) sum += cost;
  std::fill(costs.begin(), costs.end(), sum);
}

}  // namespace

std::vector<float> search_clip(ExecContext& context, ConstMatrix w, const InputStats& stats,
                               int64_t group_size, const ClippedRule& rule,
                               const ClipOptions& options) {
  HALLEY_CHECK(w.num_cols == stats.K && w.dtype == DType::kF32, w.num_cols, stats.K);
  HALLEY_CHECK(group_size >= 1 && options.num_steps >= 1, group_size, options.num_steps);
  group_size = std::min(group_size, w.num_cols);
  const int64_t num_groups = ceil_div(w.num_cols, group_size);
  const auto size = static_cast<size_t>(w.num_rows * num_groups);
  std::vector<float> clip(size, 1.0f);
  if (stats.gram.num_bytes() == 0 && stats.num_rows == 0) return clip;  // no error to compare
  RoundingErrors rounding(context, w, stats, group_size);
  std::vector<double> least(size, std::numeric_limits<double>::infinity()), costs(size);
  for (int step = 0; step < options.num_steps; ++step) {
    const double ratio = 1.0 - static_cast<double>(step) / options.num_steps;
    // 1 - 10/20 and the like are not exact in binary.
    if (ratio < options.ratio_min - 1e-9) break;
    const auto clipped = static_cast<float>(ratio);
    rounding.measure(*rule(std::vector<float>(size, clipped)), costs);
    for (int64_t n = 0; options.is_whole_row && n < w.num_rows; ++n) {
      share_over_row({costs.data() + n * num_groups, static_cast<size_t>(num_groups)});
    }
    for (size_t i = 0; i < size; ++i) {
      if (!(costs[i] < least[i])) continue;
      least[i] = costs[i];
      clip[i] = clipped;
    }
  }
  return clip;
}

}  // namespace halley
