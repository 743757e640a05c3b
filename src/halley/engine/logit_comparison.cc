#include "halley/engine/logit_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/perplexity.h"
#include "halley/sampling/base/sampler.h"

namespace halley {
namespace {

constexpr double kNormal975 = 1.959963984540054;  // the normal distribution's 97.5 % point

size_t top_id(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The mean over tokens of `field`, with the interval that LogitComparison describes.
template <typename Field>
Estimate clustered_mean(std::span<const TokenComparison> tokens,
                        std::span<const int64_t> window_tokens, const Field& field) {
  std::vector<double> sums;
  double total = 0;
  size_t next = 0;
  for (const int64_t num_tokens : window_tokens) {
    double sum = 0;
    for (int64_t i = 0; i < num_tokens; ++i) sum += field(tokens[next++]);
    sums.push_back(sum);
    total += sum;
  }
  const auto num_tokens = static_cast<double>(tokens.size());
  Estimate estimate{total / num_tokens, std::nullopt};
  if (sums.size() < 2) return estimate;
  double squares = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double residual = sums[i] - estimate.value * static_cast<double>(window_tokens[i]);
    squares += residual * residual;
  }
  const auto num_windows = static_cast<double>(sums.size());
  const double error = std::sqrt(num_windows / (num_windows - 1) * squares) / num_tokens;
  const double margin = student_t_975(static_cast<int64_t>(sums.size()) - 1) * error;
  estimate.interval = {estimate.value - margin, estimate.value + margin};
  return estimate;
}

Estimate exp_of(const Estimate& log) {
  Estimate estimate{std::exp(log.value), std::nullopt};
  if (log.interval) estimate.interval = {std::exp(log.interval->low), std::exp(log.interval->high)};
  return estimate;
}

// Linear between the two order statistics around it; `values` are sorted.
double percentile_of_sorted(const std::vector<double>& values, double share) {
  const double position = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

void check_finite(const TokenComparison& token, int64_t token_index) {
  if (std::isfinite(token.reference_nll) && std::isfinite(token.nll) &&
      std::isfinite(token.kl_divergence)) {
    return;
  }
  throw CheckpointError(
      str("logits: expected finite likelihoods and a finite divergence at token ", token_index,
          " of the text, got ", token.nll, " nats, ", token.reference_nll,
          " of the reference and a divergence of ", token.kl_divergence,
          ". The weights may be damaged, or a model overflows its number format."));
}

}  // namespace

double student_t_975(int64_t degrees_of_freedom) {
  HALLEY_CHECK(degrees_of_freedom >= 1, degrees_of_freedom);
  // The expansion below is not accurate enough for few degrees of freedom; these are from
  // textbooks.
  constexpr std::array<double, 4> kFew = {12.7062, 4.3027, 3.1824, 2.7764};
  if (degrees_of_freedom <= 4) return kFew.at(static_cast<size_t>(degrees_of_freedom - 1));
  // Abramowitz and Stegun 26.7.5 at the normal distribution's 97.5 % point.
  const double inverse = 1 / static_cast<double>(degrees_of_freedom);
  return kNormal975 + inverse * (2.372271 + inverse * (2.822502 + inverse * 2.555852));
}

Estimate wilson_estimate(int64_t num_hits, int64_t num_trials) {
  HALLEY_CHECK(num_trials >= 1 && num_hits >= 0 && num_hits <= num_trials, num_hits, num_trials);
  const auto count = static_cast<double>(num_trials);
  const double share = static_cast<double>(num_hits) / count;
  const double weight = kNormal975 * kNormal975 / count;
  const double center = (share + weight / 2) / (1 + weight);
  const double margin =
      kNormal975 / (1 + weight) * std::sqrt(share * (1 - share) / count + weight / (4 * count));
  return {share,
          Estimate::Interval{std::max(0.0, center - margin), std::min(1.0, center + margin)}};
}

TokenComparison compare_token(std::span<const float> reference, std::span<const float> logits,
                              int32_t id) {
  const double reference_sum = log_sum_exp(reference);
  const double sum = log_sum_exp(logits);
  // With p = exp(a - A) and q = exp(b - B): sum p log(p / q) = sum p (a - b) - (A - B).
  double mean_difference = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(double{reference[i]} - reference_sum);
    if (p == 0) continue;
    mean_difference += p * (double{reference[i]} - double{logits[i]});
  }
  TokenComparison token;
  token.reference_nll = reference_sum - double{reference[static_cast<size_t>(id)]};
  token.nll = sum - double{logits[static_cast<size_t>(id)]};
  token.kl_divergence = mean_difference - (reference_sum - sum);
  token.has_same_top = top_id(reference) == top_id(logits);
  return token;
}

LogitComparison summarize(std::span<const TokenComparison> tokens,
                          std::span<const int64_t> window_tokens) {
  const auto mean = [&](const auto& field) { return clustered_mean(tokens, window_tokens, field); };
  using Token = const TokenComparison&;
  LogitComparison result;
  result.num_tokens = static_cast<int64_t>(tokens.size());
  result.num_windows = static_cast<int64_t>(window_tokens.size());
  result.reference_perplexity =
      std::exp(mean([](Token token) { return token.reference_nll; }).value);
  result.perplexity = std::exp(mean([](Token token) { return token.nll; }).value);
  result.log_perplexity_increase =
      mean([](Token token) { return token.nll - token.reference_nll; });
  result.perplexity_ratio = exp_of(result.log_perplexity_increase);
  result.kl_divergence = mean([](Token token) { return token.kl_divergence; });
  std::vector<double> divergences;
  int64_t num_agreed = 0;
  for (const TokenComparison& token : tokens) {
    divergences.push_back(token.kl_divergence);
    num_agreed += token.has_same_top ? 1 : 0;
  }
  std::sort(divergences.begin(), divergences.end());
  result.kl_p99 = percentile_of_sorted(divergences, 0.99);
  result.kl_max = divergences.back();
  result.top1_agreement = wilson_estimate(num_agreed, result.num_tokens);
  return result;
}

std::vector<LogitComparison> compare_logits(const ReferenceLogits& reference, int64_t vocab_size,
                                            std::span<const ComparedModel> models,
                                            std::span<const int32_t> ids,
                                            const ComparisonOptions& options) {
  std::vector<std::unique_ptr<WindowForward>> forwards;
  for (const ComparedModel& compared : models) {
    const ModelShape& shape = compared.model->shape();
    if (shape.vocab_size != vocab_size) {
      throw InputError(str("model: expected the reference's vocabulary of ", vocab_size,
                           " ids, got ", shape.vocab_size,
                           ". Compare models that come from one checkpoint."));
    }
    check_windows(shape, ids, options.window, options.chunk_rows);
    forwards.push_back(std::make_unique<WindowForward>(*compared.model, ids, options.window,
                                                       options.chunk_rows, compared.kv_dtype));
  }
  const auto num_ids = static_cast<int64_t>(ids.size());
  const int64_t num_total = num_scored_tokens(num_ids, options.window);
  std::vector<std::vector<TokenComparison>> tokens(models.size());
  std::vector<int64_t> window_tokens;
  int64_t num_done = 0;
  for (const WindowChunk& chunk : cut_windows(num_ids, options.window, options.chunk_rows)) {
    if (chunk.first_row == chunk.window_begin) window_tokens.push_back(0);
    window_tokens.back() += chunk.num_rows;
    const std::span<const float> expected = reference(chunk);
    for (size_t model = 0; model < models.size(); ++model) {
      const std::span<const float> logits = forwards[model]->run(chunk);
      tokens[model].resize(static_cast<size_t>(num_done + chunk.num_rows));
      options.pool->run(chunk.num_rows, [&](int64_t i, int) {
        const auto begin = static_cast<size_t>(i * vocab_size);
        const auto count = static_cast<size_t>(vocab_size);
        tokens[model][static_cast<size_t>(num_done + i)] =
            compare_token(expected.subspan(begin, count), logits.subspan(begin, count),
                          ids[static_cast<size_t>(chunk.first_row + i + 1)]);
      });
      for (int64_t i = 0; i < chunk.num_rows; ++i) {
        check_finite(tokens[model][static_cast<size_t>(num_done + i)], chunk.first_row + i + 1);
      }
    }
    num_done += chunk.num_rows;
    if (options.on_progress) options.on_progress(num_done, num_total);
  }
  std::vector<LogitComparison> results;
  for (const auto& model_tokens : tokens) results.push_back(summarize(model_tokens, window_tokens));
  return results;
}

}  // namespace halley
