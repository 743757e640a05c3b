#include "halley/sampling/base/dry_penalty.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/sampling/base/sampler.h"
#include "halley/sampling/base/token_choice.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Ids = std::vector<int32_t>;

struct DryCase {
  Ids tokens;
  double multiplier, base;
  int64_t allowed_length, last_n;
  std::vector<Ids> breakers;
};

std::shared_ptr<const DryBreakers> breakers_of(const std::vector<Ids>& sequences) {
  auto breakers = std::make_shared<DryBreakers>();
  for (const Ids& ids : sequences) breakers->add(ids.front(), {ids.begin() + 1, ids.end()});
  return breakers;
}

ChoiceParams params_of(const DryCase& dry) {
  ChoiceParams params;
  params.dry_multiplier = dry.multiplier;
  params.dry_base = dry.base;
  params.dry_allowed_length = dry.allowed_length;
  params.dry_penalty_last_n = dry.last_n;
  return params;
}

/// The first `num_prompt_tokens` tokens as the prompt, the others as recorded.
std::vector<double> penalties_of(const DryCase& dry, size_t vocab_size, size_t num_prompt_tokens) {
  const std::span tokens(dry.tokens);
  DryPenalty penalty(params_of(dry), breakers_of(dry.breakers), tokens.first(num_prompt_tokens));
  for (const int32_t id : tokens.subspan(num_prompt_tokens)) penalty.record(id);
  std::vector<double> scores(vocab_size, 0.0);
  std::vector<int64_t> repeats;
  penalty.apply(scores, repeats);
  for (double& score : scores) score = -score;
  return scores;
}

// The probabilities of llama.cpp's own tests (tests/test-sampling.cpp, test_dry), whose logits are
// equal.
struct LlamaCppCase {
  DryCase dry;
  std::vector<double> probabilities;
};
const LlamaCppCase kLlamaCppCases[] = {
    {{{0, 1}, 1.0, 1.1, 2, 4, {}}, {0.25, 0.25, 0.25, 0.25}},
    {{{0, 1, 2, 0, 1}, 1.0, 1.1, 2, 5, {}}, {0.296923, 0.296923, 0.109232, 0.296923}},
    {{{0, 1, 3, 4, 0, 1}, 1.0, 1.1, 2, 6, {{3}}}, {0.2, 0.2, 0.2, 0.2, 0.2}},
    {{{0, 1, 2, 0, 1}, 2.0, 1.1, 2, 5, {}}, {0.241818, 0.241818, 0.032727, 0.241818, 0.241818}},
    {{{0, 1, 2, 3, 4, 0, 1}, 1.0, 1.1, 4, 7, {}}, {0.2, 0.2, 0.2, 0.2, 0.2}},
};

TEST(DryPenalty, GivesTheProbabilitiesOfLlamaCppsTests) {
  for (const LlamaCppCase& item : kLlamaCppCases) {
    const std::vector<float> logits(item.probabilities.size(), 0.0f);
    for (size_t num_prompt_tokens : {size_t{0}, size_t{2}, item.dry.tokens.size()}) {
      TokenChoice choice = {.params = params_of(item.dry)};
      choice.dry_breakers = breakers_of(item.dry.breakers);
      const std::span tokens(item.dry.tokens);
      Sampler sampler(choice, tokens.first(num_prompt_tokens));
      for (const int32_t id : tokens.subspan(num_prompt_tokens)) sampler.record(id);
      SamplerScratch scratch;
      ASSERT_EQ(sampler.filter(logits, scratch), SampleStatus::kChosen);
      ASSERT_EQ(scratch.candidates.size(), logits.size());
      double total = 0;
      for (const SampleCandidate& candidate : scratch.candidates) total += candidate.weight;
      for (size_t i = 0; i < logits.size(); ++i) {
        EXPECT_NEAR(scratch.candidates[i].weight / total, item.probabilities[i], 1e-6)
            << str(item.dry.tokens) << " token " << i;
      }
    }
  }
}

// The definition, word by word and without regard to time.
std::vector<double> reference_penalties(const DryCase& dry, size_t vocab_size) {
  std::vector<double> penalties(vocab_size, 0.0);
  Ids window = dry.tokens;
  if (dry.last_n >= 0 && window.size() > static_cast<size_t>(dry.last_n)) {
    window.erase(window.begin(), window.end() - static_cast<ptrdiff_t>(dry.last_n));
  }
  const auto size = static_cast<int64_t>(window.size());
  // The breaker whose first token is the last one, and of those the longest.
  int64_t limit = size;
  for (int64_t first = size - 1; first >= 0 && limit == size; --first) {
    for (const Ids& breaker : dry.breakers) {
      const auto length = static_cast<int64_t>(breaker.size());
      if (first + length > size) continue;
      if (std::equal(breaker.begin(), breaker.end(), window.begin() + first)) {
        limit = std::min(limit, size - first - length);
      }
    }
  }
  for (int32_t id = 0; id < static_cast<int32_t>(vocab_size); ++id) {
    const bool is_breaker = std::any_of(dry.breakers.begin(), dry.breakers.end(),
                                        [&](const Ids& ids) { return ids == Ids{id}; });
    int64_t longest = -1;
    for (int64_t end = 1; end < size; ++end) {  // window[end] followed window[0, end)
      if (window[static_cast<size_t>(end)] != id) continue;
      int64_t length = 0;
      while (length < end && window[static_cast<size_t>(end - 1 - length)] ==
                                 window[static_cast<size_t>(size - 1 - length)]) {
        ++length;
      }
      longest = std::max(longest, std::min(length, limit));
    }
    const bool is_long = size > dry.allowed_length && longest >= dry.allowed_length;
    if (is_breaker || !is_long) continue;
    penalties[static_cast<size_t>(id)] =
        dry.multiplier * std::pow(dry.base, static_cast<double>(longest - dry.allowed_length));
  }
  return penalties;
}

TEST(DryPenalty, IsThatOfTheDefinitionForRandomTexts) {
  constexpr size_t kVocabSize = 6;
  std::mt19937 random(11);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(n));
  };
  int num_penalties = 0;
  for (int round = 0; round < 3000; ++round) {
    DryCase dry = {.tokens = {},
                   .multiplier = 0.8,
                   .base = 1.0 + 0.25 * static_cast<double>(below(4)),
                   .allowed_length = below(5),
                   .last_n = below(2) == 0 ? -1 : 1 + below(40),
                   .breakers = {}};
    const int64_t num_letters = 1 + below(3);  // few, so that texts repeat
    const int64_t length = below(40);
    for (int64_t i = 0; i < length; ++i)
      dry.tokens.push_back(static_cast<int32_t>(below(num_letters)));
    for (int64_t i = 0; i < length / 4; ++i) {
      if (below(6) == 0)
        dry.tokens[static_cast<size_t>(below(length))] = static_cast<int32_t>(below(kVocabSize));
    }
    const int64_t num_breakers = below(3);
    for (int64_t i = 0; i < num_breakers; ++i) {
      Ids& breaker = dry.breakers.emplace_back();
      const int64_t breaker_length = 1 + below(3);
      for (int64_t j = 0; j < breaker_length; ++j)
        breaker.push_back(static_cast<int32_t>(below(kVocabSize)));
    }
    const std::vector<double> expected = reference_penalties(dry, kVocabSize);
    const auto num_prompt_tokens = static_cast<size_t>(below(length + 1));
    const std::vector<double> actual = penalties_of(dry, kVocabSize, num_prompt_tokens);
    for (size_t id = 0; id < kVocabSize; ++id) {
      ASSERT_NEAR(actual[id], expected[id], 1e-9 * (1 + expected[id]))
          << "round " << round << " token " << id << " of " << str(dry.tokens);
      if (expected[id] > 0) ++num_penalties;
    }
  }
  EXPECT_GT(num_penalties, 2000);
}

TEST(DryPenalty, DoesNotGrowBeyondF32) {
  DryCase dry = {.tokens = Ids(5000, 3),
                 .multiplier = 1,
                 .base = 2,
                 .allowed_length = 2,
                 .last_n = -1,
                 .breakers = {}};
  const double largest = penalties_of(dry, 4, 0)[3];
  EXPECT_GT(largest, 1e38);
  EXPECT_LT(largest, 4e38);
  dry.base = 1;
  EXPECT_EQ(penalties_of(dry, 4, 0)[3], 1);
}

TEST(DryBreakers, KeepEachTailOnce) {
  DryBreakers breakers;
  breakers.add(4, {});
  breakers.add(4, {5, 6});
  breakers.add(4, {5, 6});
  breakers.add(7, {8});
  EXPECT_THAT(breakers.tails_of(4), ElementsAre(IsEmpty(), ElementsAre(5, 6)));
  EXPECT_THAT(breakers.tails_of(1), IsEmpty());
  EXPECT_TRUE(breakers.is_breaker(4));
  EXPECT_FALSE(breakers.is_breaker(7));
  EXPECT_EQ(breakers.num_heads(), 2u);
}

}  // namespace
}  // namespace halley
