// Compares a model's predictions of a text with those of a reference, to measure the cost of low
// precision.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "halley/core/thread_pool.h"
#include "halley/engine/window_forward.h"
#include "halley/models/base/causal_lm.h"

namespace halley {

/// A value and its 95 % confidence interval.
struct Estimate {
  double value = 0;
  struct Interval {
    double low = 0, high = 0;
  };
  std::optional<Interval> interval;  // absent if there is a single window
};

/// Two models on the same tokens. Logarithms are natural; sums are f64.
///
/// Tokens of one window are correlated, so the intervals of means take windows as the sampled
/// units: with S_w the sum and n_w the tokens of window w, and C windows, the mean is m = sum S_w /
/// sum n_w, its variance C / (C - 1) * sum (S_w - m n_w)^2 / (sum n_w)^2, and the interval m +- t(C
/// - 1) standard errors with Student's t. The interval of the share of agreement is Wilson's score
/// interval, which assumes independent tokens.
struct LogitComparison {
  int64_t num_tokens = 0;  // number of scored tokens
  int64_t num_windows = 0;
  double reference_perplexity = 0;
  double perplexity = 0;
  Estimate log_perplexity_increase;  // mean of nll - reference's nll
  Estimate perplexity_ratio;         // exp of that
  Estimate kl_divergence;            // mean of D(reference || model), in nats a token
  double kl_p99 = 0;                 // 99th percentile over tokens, interpolated linearly
  double kl_max = 0;
  Estimate top1_agreement;  // share of tokens whose most likely id is the same
};

/// The comparison of one token. Ties of logits count for the lower id.
struct TokenComparison {
  double reference_nll = 0, nll = 0, kl_divergence = 0;
  bool has_same_top = false;
};

/// `reference` and `logits` [V] predict token `id`. Logits of -infinity are probabilities of zero.
TokenComparison compare_token(std::span<const float> reference, std::span<const float> logits,
                              int32_t id);

/// The summary of tokens [num_tokens] that lie in windows of these numbers of tokens.
LogitComparison summarize(std::span<const TokenComparison> tokens,
                          std::span<const int64_t> window_tokens);

/// The value that Student's t with this many degrees of freedom (at least 1) exceeds with a
/// probability of 2.5 %, to 2e-3.
double student_t_975(int64_t degrees_of_freedom);

/// Wilson's 95 % score interval for `num_hits` of `num_trials`, at least one.
Estimate wilson_estimate(int64_t num_hits, int64_t num_trials);

struct ComparedModel {
  CausalLm* model = nullptr;
  std::optional<KvDType> kv_dtype;  // absent: the model's own
};

/// The reference's logits [chunk.num_rows, V] of a chunk, valid until the next call; called once
/// for each chunk, in order.
using ReferenceLogits = std::function<std::span<const float>(const WindowChunk& chunk)>;

struct ComparisonOptions {
  int64_t window = 1024;
  int64_t chunk_rows = 128;
  ThreadPool* pool = nullptr;  // compares rows; not used while a model runs
  /// Called after every chunk with the tokens scored so far and their total.
  std::function<void(int64_t num_done, int64_t num_total)> on_progress = {};
};

/// Runs all models over the same windows as compute_perplexity() cuts, chunk by chunk, so the
/// reference runs once, and compares every scored row. Returns one result per model.
///
/// Throws as compute_perplexity(), and InputError if a model's vocabulary is not of
/// `vocab_size`, that of the reference.
std::vector<LogitComparison> compare_logits(const ReferenceLogits& reference, int64_t vocab_size,
                                            std::span<const ComparedModel> models,
                                            std::span<const int32_t> ids,
                                            const ComparisonOptions& options);

}  // namespace halley
