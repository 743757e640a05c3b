#include "halley/engine/logit_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/engine/perplexity.h"
#include "halley/engine/testing/fake_causal_lm.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kVocabSize = 37;

std::vector<float> random_logits(std::mt19937_64& random, size_t count) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits) {
  double sum = 0;
  std::vector<double> shares;
  for (const float logit : logits) sum += std::exp(double{logit});
  for (const float logit : logits) shares.push_back(std::exp(double{logit}) / sum);
  return shares;
}

TEST(CompareToken, IsTheDefinitionInF64) {
  std::mt19937_64 random(1);
  for (const size_t vocab_size : {1, 2, 37, 1000}) {
    const std::vector<float> reference = random_logits(random, vocab_size);
    const std::vector<float> logits = random_logits(random, vocab_size);
    const std::vector<double> p = softmax(reference), q = softmax(logits);
    double expected = 0;
    for (size_t i = 0; i < vocab_size; ++i) expected += p[i] * std::log(p[i] / q[i]);
    const size_t id = random() % vocab_size;
    const TokenComparison token = compare_token(reference, logits, static_cast<int32_t>(id));
    EXPECT_NEAR(token.kl_divergence, expected, 1e-12);
    EXPECT_NEAR(token.reference_nll, -std::log(p[id]), 1e-12);
    EXPECT_NEAR(token.nll, -std::log(q[id]), 1e-12);
    const auto top = [](const std::vector<double>& x) {
      return std::max_element(x.begin(), x.end()) - x.begin();
    };
    EXPECT_EQ(token.has_same_top, top(p) == top(q));
  }
}

TEST(CompareToken, OfEqualLogitsIsZeroAndIgnoresAConstant) {
  std::mt19937_64 random(2);
  const std::vector<float> logits = random_logits(random, 100);
  EXPECT_EQ(compare_token(logits, logits, 3).kl_divergence, 0);
  std::vector<float> moved = logits;
  for (float& logit : moved) logit += 64;
  EXPECT_NEAR(compare_token(logits, moved, 3).kl_divergence, 0, 1e-5);  // f32 logits are rounded
}

TEST(CompareToken, TakesImpossibleTokensOfTheReferenceForNothing) {
  const float none = -std::numeric_limits<float>::infinity();
  const std::vector<float> reference = {0, none, 0}, logits = {0, 0, 0};
  EXPECT_NEAR(compare_token(reference, logits, 0).kl_divergence, std::log(1.5), 1e-12);
  EXPECT_EQ(compare_token(logits, reference, 0).kl_divergence,
            std::numeric_limits<double>::infinity());
}

// Quantiles of Student's t from printed tables.
TEST(StudentT, IsThatOfTheTables) {
  const std::vector<std::pair<int64_t, double>> cases = {
      {1, 12.7062}, {2, 4.3027},  {3, 3.1824},  {4, 2.7764},   {5, 2.5706},         {6, 2.4469},
      {10, 2.2281}, {30, 2.0423}, {60, 2.0003}, {120, 1.9799}, {1'000'000, 1.95997}};
  for (const auto& [degrees, expected] : cases) {
    EXPECT_NEAR(student_t_975(degrees), expected, 3e-3) << degrees;
  }
}

// Wilson's interval is the set of shares that a two-sided score test does not reject.
TEST(Wilson, SolvesTheScoreEquation) {
  constexpr double kZ = 1.959963984540054;
  for (const auto& [hits, trials] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 1}, {3, 7}, {99, 100}, {500, 1000}}) {
    const Estimate estimate = wilson_estimate(hits, trials);
    const double share = static_cast<double>(hits) / static_cast<double>(trials);
    EXPECT_EQ(estimate.value, share);
    for (const double bound : {estimate.interval->low, estimate.interval->high}) {
      const double error = std::sqrt(bound * (1 - bound) / static_cast<double>(trials));
      EXPECT_NEAR(std::abs(share - bound), kZ * error, 1e-9) << hits << " of " << trials;
    }
  }
}

TEST(Summary, IsThatOfPlainFormulas) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0.2, 1);
  const std::vector<int64_t> window_tokens = {5, 9, 9, 2};
  std::vector<TokenComparison> tokens(25);
  for (TokenComparison& token : tokens) {
    const double reference_nll = normal(random), nll = normal(random), kl = normal(random);
    token = {reference_nll, nll, kl, random() % 3 != 0};
  }
  const LogitComparison result = summarize(tokens, window_tokens);
  // The ratio estimator's variance over clusters, as in textbooks on sampling:
  // s^2 = sum (S_w - m n_w)^2 / (C - 1), variance = s^2 / (C * mean(n)^2).
  const auto check = [&](const Estimate& estimate, const auto& value_of) {
    double total = 0;
    for (const TokenComparison& token : tokens) total += value_of(token);
    const double mean = total / 25;
    double squares = 0;
    size_t begin = 0;
    for (const int64_t count : window_tokens) {
      double residual = 0;
      for (size_t i = begin; i < begin + static_cast<size_t>(count); ++i) {
        residual += value_of(tokens[i]) - mean;
      }
      squares += residual * residual;
      begin += static_cast<size_t>(count);
    }
    const double error = std::sqrt(squares / 3 / (4 * 6.25 * 6.25));
    EXPECT_NEAR(estimate.value, mean, 1e-12);
    EXPECT_NEAR(estimate.interval->low, mean - 3.1824 * error, 1e-9);
    EXPECT_NEAR(estimate.interval->high, mean + 3.1824 * error, 1e-9);
  };
  const auto increase = [](const TokenComparison& token) {
    return token.nll - token.reference_nll;
  };
  check(result.log_perplexity_increase, increase);
  check(result.kl_divergence, [](const TokenComparison& token) { return token.kl_divergence; });
  EXPECT_NEAR(result.perplexity_ratio.value, result.perplexity / result.reference_perplexity,
              1e-12);
  EXPECT_EQ(result.perplexity_ratio.interval->low,
            std::exp(result.log_perplexity_increase.interval->low));
  std::vector<double> sorted;
  int64_t num_same = 0;
  for (const TokenComparison& token : tokens) {
    sorted.push_back(token.kl_divergence);
    num_same += token.has_same_top ? 1 : 0;
  }
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(result.kl_max, sorted.back());
  EXPECT_NEAR(result.kl_p99, sorted[23] + 0.76 * (sorted[24] - sorted[23]), 1e-12);
  EXPECT_EQ(result.top1_agreement.value, static_cast<double>(num_same) / 25);
  EXPECT_EQ(result.num_windows, 4);
}

TEST(Summary, OfOneWindowHasNoIntervals) {
  const std::vector<TokenComparison> tokens(3, {1, 2, 0.5, true});
  const LogitComparison result = summarize(tokens, std::vector<int64_t>{3});
  EXPECT_EQ(result.kl_divergence.value, 0.5);
  EXPECT_FALSE(result.kl_divergence.interval);
  EXPECT_FALSE(result.perplexity_ratio.interval);
  EXPECT_TRUE(result.top1_agreement.interval);
}

std::vector<int32_t> random_ids(size_t count) {
  std::mt19937_64 random(4);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocabSize);
  return ids;
}

// The logits of hashed_logits() with a small perturbation.
void noisy_logits(std::span<const int32_t> tokens, std::span<float> logits) {
  hashed_logits(tokens, logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] += static_cast<float>(0.1 * random_uniform(tokens.size() + 7, i));
  }
}

TEST(CompareLogits, IsThatOfEveryRowInAnyChunksAndThreads) {
  const std::vector<int32_t> ids = random_ids(61);
  constexpr int64_t kWindow = 20;  // the last window has one token
  std::vector<TokenComparison> expected;
  std::vector<float> a(kVocabSize), b(kVocabSize);
  for (size_t begin = 0; begin < 60; begin += kWindow) {
    for (size_t i = 1; i < kWindow; ++i) {
      hashed_logits({ids.data() + begin, i}, a);
      noisy_logits({ids.data() + begin, i}, b);
      expected.push_back(compare_token(a, b, ids[begin + i]));
    }
  }
  const LogitComparison whole = summarize(expected, std::vector<int64_t>{19, 19, 19});
  for (const int64_t chunk_rows : {1, 7, 128}) {
    FakeCausalLm reference(kVocabSize), noisy(kVocabSize, noisy_logits), same(kVocabSize);
    ThreadPool pool(3);
    WindowForward forward(reference, ids, kWindow, chunk_rows, std::nullopt);
    const auto reference_logits = [&](const WindowChunk& chunk) { return forward.run(chunk); };
    const std::vector<ComparedModel> models = {{&noisy, {}}, {&same, {}}};
    std::vector<int64_t> progress;
    ComparisonOptions options{.window = kWindow, .chunk_rows = chunk_rows, .pool = &pool};
    options.on_progress = [&](int64_t num_done, int64_t num_total) {
      progress.push_back(num_done);
      EXPECT_EQ(num_total, 57);
    };
    const auto results = compare_logits(reference_logits, kVocabSize, models, ids, options);
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0].num_tokens, 57);
    EXPECT_EQ(results[0].kl_divergence.value, whole.kl_divergence.value);
    EXPECT_EQ(results[0].kl_divergence.interval->low, whole.kl_divergence.interval->low);
    EXPECT_EQ(results[0].top1_agreement.value, whole.top1_agreement.value);
    EXPECT_EQ(results[1].kl_divergence.value, 0);
    EXPECT_EQ(results[1].top1_agreement.value, 1);
    EXPECT_EQ(progress.back(), 57);
    FakeCausalLm again(kVocabSize, noisy_logits);
    EXPECT_NEAR(compute_perplexity(again, ids, kWindow).perplexity, results[0].perplexity, 1e-12);
  }
}

TEST(CompareLogits, SaysWhatDoesNotFit) {
  const std::vector<int32_t> ids = random_ids(9);
  FakeCausalLm small(kVocabSize - 1), whole(kVocabSize);
  ThreadPool pool(1);
  const std::vector<float> zeros(9 * kVocabSize);
  const auto run = [&](CausalLm& model, int64_t window) {
    const std::vector<ComparedModel> models = {{&model, {}}};
    compare_logits([&](const WindowChunk&) { return std::span<const float>(zeros); }, kVocabSize,
                   models, ids, {.window = window, .pool = &pool});
  };
  EXPECT_THAT([&] { run(small, 9); },
              ThrowsMessage<InputError>("model: expected the reference's vocabulary of 37 ids, got "
                                        "36. Compare models that come from one checkpoint."));
  EXPECT_THAT([&] { run(whole, 1); }, ThrowsMessage<InputError>(HasSubstr("window: expected 2")));
  FakeCausalLm broken(kVocabSize, [](std::span<const int32_t> tokens, std::span<float> logits) {
    for (float& logit : logits) logit = 0;
    if (tokens.size() == 3) logits[1] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_THAT([&] { run(broken, 9); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("logits: expected finite likelihoods and a finite divergence at token "
                            "3 of the text, got")));
}

}  // namespace
}  // namespace halley
