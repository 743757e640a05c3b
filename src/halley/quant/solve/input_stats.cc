#include "halley/quant/solve/input_stats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/kernels/base/row_tasks.h"
#include "halley/kernels/linalg/linalg.h"

namespace halley {
namespace {

// Tokens enter the Gram matrix in blocks of this many, counted from the first one, so that
// the order of accumulation does not depend on the pieces.
constexpr int64_t kBlockTokens = 512;
// Channels of a task: whole cache lines, and accumulators that stay in the L1 cache.
constexpr int64_t kBlockChannels = 512;

void check_finite(const InputStats& stats, const std::vector<double>& abs_sum) {
  for (int64_t k = 0; k < stats.K; ++k) {
    // A sum of finite f32 values is finite in f64.
    if (std::isfinite(abs_sum[static_cast<size_t>(k)])) continue;
    throw InputError(str("calibration: expected finite inputs of a linear layer, got infinity or ",
                         "NaN in channel ", k, " of ", stats.K,
                         ". Check the model's weights and the calibration text."));
  }
  if (stats.gram.num_bytes() == 0) return;
  for (int64_t k = 0; k < stats.K; ++k) {
    if (std::isfinite(stats.gram_matrix().row<float>(k)[k])) continue;
    throw InputError(str("calibration: expected inputs whose squares f32 can add up, got channel ",
                         k, " of ", stats.K, " with values up to ",
                         stats.abs_max[static_cast<size_t>(k)],
                         ". Check the model's weights and the calibration text."));
  }
}

void permute(const std::vector<int32_t>& perm, float* values, std::vector<float>& scratch) {
  scratch.assign(values, values + perm.size());
  for (size_t i = 0; i < perm.size(); ++i) values[i] = scratch[static_cast<size_t>(perm[i])];
}

}  // namespace

Matrix InputStats::gram_matrix() {
  return gram.num_bytes() == 0 ? Matrix{} : f32_matrix(gram.as<float>().data(), K, K);
}

ConstMatrix InputStats::gram_matrix() const {
  return gram.num_bytes() == 0 ? ConstMatrix{} : f32_matrix(gram.as<float>().data(), K, K);
}

ConstMatrix InputStats::row_matrix() const { return f32_matrix(rows.data(), num_rows, K); }

InputStatsCollector::InputStatsCollector(int64_t K, const StatsRequest& request)
    : request_(request) {
  HALLEY_CHECK(K >= 1 && request.num_rows >= 0 && request.num_tokens_expected >= 0, K,
               request.num_rows, request.num_tokens_expected);
  const auto size = static_cast<size_t>(K);
  stats_.K = K;
  stats_.abs_max.assign(size, 0.0f);
  stats_.abs_mean.assign(size, 0.0f);
  abs_sum_.assign(size, 0.0);
  if (request.has_gram) {
    stats_.gram = HostBuffer(size * size * sizeof(float));
    std::memset(stats_.gram.data(), 0, stats_.gram.num_bytes());
  }
}

void InputStatsCollector::add(ExecContext& context, ConstMatrix x) {
  HALLEY_CHECK(x.num_cols == stats_.K && x.dtype == DType::kF32, x.num_cols, stats_.K,
               name_of(x.dtype));
  add_magnitudes(context, x);
  keep_rows(x);
  if (request_.has_gram) add_gram_blocks(context, x);
  stats_.num_tokens += x.num_rows;
}

void InputStatsCollector::add_magnitudes(ExecContext& context, ConstMatrix x) {
  const int64_t num_blocks = ceil_div(stats_.K, kBlockChannels);
  for_row_ranges(context, num_blocks, kBlockChannels * x.num_rows,
                 [&](int64_t first, int64_t last) {
                   const int64_t end = std::min(stats_.K, last * kBlockChannels);
                   for (int64_t t = 0; t < x.num_rows; ++t) {
                     const float* from = x.row<float>(t);
                     for (int64_t k = first * kBlockChannels; k < end; ++k) {
                       const float magnitude = std::abs(from[k]);
                       float& largest = stats_.abs_max[static_cast<size_t>(k)];
                       largest = magnitude > largest ? magnitude : largest;
                       abs_sum_[static_cast<size_t>(k)] += static_cast<double>(magnitude);
                     }
                   }
                 });
}

void InputStatsCollector::keep_rows(ConstMatrix x) {
  const int64_t expected = std::max(request_.num_tokens_expected, request_.num_rows);
  while (stats_.num_rows < request_.num_rows) {
    const auto position = checked_mul(stats_.num_rows, expected);
    HALLEY_CHECK(position.has_value(), stats_.num_rows, expected);
    const int64_t t = *position / request_.num_rows - stats_.num_tokens;
    if (t >= x.num_rows) return;
    const float* from = x.row<float>(t);
    stats_.rows.insert(stats_.rows.end(), from, from + stats_.K);
    ++stats_.num_rows;
  }
}

void InputStatsCollector::add_gram_blocks(ExecContext& context, ConstMatrix x) {
  const auto K = static_cast<size_t>(stats_.K);
  for (int64_t t = 0; t < x.num_rows;) {
    const auto num_waiting = static_cast<int64_t>(waiting_.size() / K);
    const int64_t num_taken = std::min(x.num_rows - t, kBlockTokens - num_waiting);
    const ConstMatrix taken = x.rows(t, t + num_taken);
    t += num_taken;
    if (num_taken == kBlockTokens) {
      add_gram(context, taken, stats_.gram_matrix());
      continue;
    }
    for (int64_t i = 0; i < num_taken; ++i) {
      waiting_.insert(waiting_.end(), taken.row<float>(i), taken.row<float>(i) + K);
    }
    if (num_waiting + num_taken < kBlockTokens) return;
    add_gram(context, f32_matrix(std::as_const(waiting_).data(), kBlockTokens, stats_.K),
             stats_.gram_matrix());
    waiting_.clear();
  }
}

InputStats InputStatsCollector::finish(ExecContext& context) {
  if (!waiting_.empty()) {
    const auto num_waiting = static_cast<int64_t>(waiting_.size()) / stats_.K;
    add_gram(context, f32_matrix(std::as_const(waiting_).data(), num_waiting, stats_.K),
             stats_.gram_matrix());
  }
  waiting_ = {};
  check_finite(stats_, abs_sum_);
  for (size_t k = 0; k < abs_sum_.size() && stats_.num_tokens > 0; ++k) {
    stats_.abs_mean[k] = static_cast<float>(abs_sum_[k] / static_cast<double>(stats_.num_tokens));
  }
  return std::move(stats_);
}

InputStats copy_of(const InputStats& stats) {
  InputStats copy = sample_of(stats, stats.rows, stats.num_rows);
  copy.gram = HostBuffer(stats.gram.num_bytes());
  if (stats.gram.num_bytes() > 0) {
    std::memcpy(copy.gram.data(), stats.gram.data(), stats.gram.num_bytes());
  }
  return copy;
}

InputStats sample_of(const InputStats& stats, std::vector<float> rows, int64_t num_rows) {
  return {.K = stats.K,
          .num_tokens = stats.num_tokens,
          .abs_max = stats.abs_max,
          .abs_mean = stats.abs_mean,
          .gram = {},
          .rows = std::move(rows),
          .num_rows = num_rows};
}

void scale_stats(InputStats& stats, const std::vector<float>& factors) {
  HALLEY_CHECK(factors.size() == static_cast<size_t>(stats.K), factors.size(), stats.K);
  const auto scale_row = [&](float* row) {
    for (size_t k = 0; k < factors.size(); ++k) row[k] *= factors[k];
  };
  scale_row(stats.abs_max.data());
  scale_row(stats.abs_mean.data());
  for (int64_t i = 0; i < stats.num_rows; ++i) scale_row(stats.rows.data() + i * stats.K);
  const Matrix gram = stats.gram_matrix();
  for (int64_t i = 0; i < gram.num_rows; ++i) {
    float* row = gram.row<float>(i);
    const float of_row = factors[static_cast<size_t>(i)];
    // The factors are multiplied first, so that the matrix stays symmetric to the bit.
    for (size_t k = 0; k < factors.size(); ++k) row[k] *= of_row * factors[k];
  }
}

void permute_stats(InputStats& stats, const std::vector<int32_t>& perm) {
  HALLEY_CHECK(perm.size() == static_cast<size_t>(stats.K), perm.size(), stats.K);
  std::vector<char> is_used(perm.size(), 0);
  for (const int32_t from : perm) {
    HALLEY_CHECK(from >= 0 && from < stats.K && is_used[static_cast<size_t>(from)] == 0, from);
    is_used[static_cast<size_t>(from)] = 1;
  }
  std::vector<float> scratch;
  permute(perm, stats.abs_max.data(), scratch);
  permute(perm, stats.abs_mean.data(), scratch);
  for (int64_t i = 0; i < stats.num_rows; ++i) {
    permute(perm, stats.rows.data() + i * stats.K, scratch);
  }
  const Matrix gram = stats.gram_matrix();
  if (gram.num_rows == 0) return;
  InputStats permuted;
  permuted.K = stats.K;
  permuted.gram = HostBuffer(stats.gram.num_bytes());
  for (int64_t i = 0; i < stats.K; ++i) {
    float* row = permuted.gram_matrix().row<float>(i);
    const float* from = gram.row<float>(perm[static_cast<size_t>(i)]);
    for (int64_t k = 0; k < stats.K; ++k) row[k] = from[perm[static_cast<size_t>(k)]];
  }
  stats.gram = std::move(permuted.gram);
}

}  // namespace halley
