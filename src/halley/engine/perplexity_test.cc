#include "halley/engine/perplexity.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/engine/testing/fake_causal_lm.h"
#include "halley/engine/testing/fake_step_runner.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kVocabSize = 50;

std::vector<int32_t> random_ids(size_t count) {
  std::mt19937_64 random(1);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocabSize);
  return ids;
}

// The definition, without cache or chunks.
std::vector<double> window_nll_of(const std::vector<int32_t>& ids, size_t window) {
  std::vector<double> result;
  std::vector<float> logits(kVocabSize);
  for (size_t begin = 0; begin + 1 < ids.size(); begin += window) {
    double nll = 0;
    for (size_t i = begin + 1; i < std::min(begin + window, ids.size()); ++i) {
      hashed_logits({ids.data() + begin, i - begin}, logits);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(double{logit});
      nll += std::log(sum) - double{logits[static_cast<size_t>(ids[i])]};
    }
    result.push_back(nll);
  }
  return result;
}

TEST(Perplexity, IsThatOfTheDefinitionInAnyChunks) {
  const std::vector<int32_t> ids = random_ids(101);
  for (const int64_t window : {2, 10, 33, 101, 300}) {
    const std::vector<double> expected = window_nll_of(ids, static_cast<size_t>(window));
    double nll = 0;
    for (const double x : expected) nll += x;
    for (const int64_t chunk_rows : {1, 7, 128}) {
      FakeCausalLm on_host(kVocabSize);
      FakeDeviceLm on_device(kVocabSize, hashed_logits, 512, false);
      PerplexityOptions options;
      options.chunk_rows = chunk_rows;
      for (CausalLm* model :
           {static_cast<CausalLm*>(&on_host), static_cast<CausalLm*>(&on_device)}) {
        const PerplexityResult result = compute_perplexity(*model, ids, window, options);
        EXPECT_THAT(result.window_nll, testing::Pointwise(testing::DoubleNear(1e-9), expected));
        EXPECT_EQ(result.num_tokens, 101 - (101 + window - 1) / window);
        EXPECT_NEAR(result.perplexity, std::exp(nll / static_cast<double>(result.num_tokens)),
                    1e-9);
      }
    }
  }
}

TEST(Perplexity, ScoresNothingInALastWindowOfOneToken) {
  FakeCausalLm model(kVocabSize);
  const PerplexityResult result = compute_perplexity(model, random_ids(21), 10);
  EXPECT_EQ(result.num_tokens, 18);
  EXPECT_EQ(result.window_nll.size(), 2u);
}

TEST(Perplexity, ShowsLogitsOfEveryScoredTokenAndProgress) {
  const std::vector<int32_t> ids = random_ids(9);
  FakeCausalLm model(kVocabSize);
  PerplexityOptions options;
  options.chunk_rows = 2;
  std::vector<int64_t> indices, progress;
  double nll = 0;
  options.on_logits = [&](int64_t index, std::span<const float> logits) {
    indices.push_back(index);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    nll += std::log(sum) - double{logits[static_cast<size_t>(ids[static_cast<size_t>(index)])]};
  };
  options.on_progress = [&](int64_t num_done, int64_t num_total) {
    progress.push_back(num_done);
    EXPECT_EQ(num_total, 7);
  };
  const PerplexityResult result = compute_perplexity(model, ids, 5, options);
  EXPECT_THAT(indices, ElementsAre(1, 2, 3, 4, 6, 7, 8));
  EXPECT_THAT(progress, ElementsAre(2, 4, 6, 7));
  EXPECT_NEAR(result.nll, nll, 1e-9);
}

TEST(Perplexity, SaysWhatIsWrongWithItsInput) {
  FakeCausalLm model(kVocabSize);
  const auto run = [&](std::vector<int32_t> ids, int64_t window, const PerplexityOptions& options) {
    return [&model, ids, window, options] { compute_perplexity(model, ids, window, options); };
  };
  EXPECT_THAT(
      run(random_ids(9), 1, {}),
      ThrowsMessage<InputError>("window: expected 2 to the model's maximum of 512 tokens, got 1"));
  EXPECT_THAT(run(random_ids(9), 513, {}), ThrowsMessage<InputError>(HasSubstr("got 513")));
  EXPECT_THAT(run({3}, 9, {}),
              ThrowsMessage<InputError>("text: expected at least 2 tokens, got 1"));
  EXPECT_THAT(run({3, 50}, 9, {}),
              ThrowsMessage<InputError>("text: expected token ids of 0 to 49, got 50. Check that "
                                        "the tokenizer belongs to the model."));
  PerplexityOptions options;
  options.chunk_rows = 0;
  EXPECT_THAT(run({3, 4}, 9, options),
              ThrowsMessage<InputError>("chunk_rows: expected 1 to 65536, got 0"));
}

TEST(Perplexity, SaysWhichTokenHasNoLikelihood) {
  const auto logits_of = [](std::span<const int32_t> tokens, std::span<float> logits) {
    for (float& logit : logits) logit = 0;
    if (tokens.size() == 3) logits[1] = std::numeric_limits<float>::quiet_NaN();
  };
  FakeCausalLm model(kVocabSize, logits_of);
  EXPECT_THAT([&] { compute_perplexity(model, random_ids(9), 9); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("logits: expected a finite likelihood of token 3 of the text, got")));
}

}  // namespace
}  // namespace halley
