#include "halley/sampling/base/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/core/philox.h"
#include "halley/json/json.h"
#include "halley/sampling/base/sampling_fields.h"
#include "halley/sampling/base/sampling_params.h"

namespace halley {
namespace {

using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sampler make_sampler(const SamplingParams& params, std::vector<int32_t> stop_ids = {},
                     const std::vector<int32_t>& prompt_ids = {0}) {
  return Sampler(token_choice_of(params, std::move(stop_ids), 0), prompt_ids);
}

std::map<int32_t, double> probabilities(const Sampler& sampler, const std::vector<float>& logits) {
  SamplerScratch scratch;
  EXPECT_EQ(sampler.filter(logits, scratch), SampleStatus::kChosen);
  double total = 0;
  for (const SampleCandidate& candidate : scratch.candidates) total += candidate.weight;
  std::map<int32_t, double> result;
  for (const SampleCandidate& candidate : scratch.candidates) {
    result[candidate.token_id] = candidate.weight / total;
  }
  return result;
}

SamplingParams params_from_json(const Json& json) {
  SamplingParams params;
  for (const SamplingField& field : sampling_fields()) {
    std::visit([&](auto member) { params.*member = json.value(field.name, params.*member); },
               field.member);
  }
  params.min_tokens = json.value("min_tokens", params.min_tokens);
  const Json biases = json.value("logit_bias", Json::object());
  for (const auto& [id, bias] : biases.items()) {
    params.logit_bias[std::stoi(id)] = bias.get<double>();
  }
  return params;
}

TEST(Sampler, AgreesWithTheNumpyGoldens) {
  constexpr double kTolerance = 1e-6;  // the goldens have ten digits; both sides are f64
  const std::string path = std::string(HALLEY_SOURCE_DIR) + "/testdata/sampling/golden.json";
  const Json golden = parse_json(read_text_file(path, 1'000'000), path);
  ASSERT_GE(golden["cases"].size(), 100u);
  for (const Json& item : golden["cases"]) {
    SCOPED_TRACE(item.dump());
    const auto logits = item["logits"].get<std::vector<float>>();
    Sampler sampler =
        make_sampler(params_from_json(item["params"]), item["stop_ids"].get<std::vector<int32_t>>(),
                     item["prompt_ids"].get<std::vector<int32_t>>());
    for (const Json& id : item["output_ids"]) sampler.record(id.get<int32_t>());
    std::map<int32_t, double> expected;
    for (const Json& pair : item["probabilities"]) expected[pair[0]] = pair[1].get<double>();
    std::map<int32_t, double> actual = probabilities(sampler, logits);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [id, probability] : expected) {
      ASSERT_TRUE(actual.contains(id)) << id;
      EXPECT_NEAR(actual[id], probability, kTolerance) << id;
    }
    SamplerScratch scratch;
    const std::vector<TokenLogprob> best = top_logprobs(logits, 3, scratch);
    ASSERT_EQ(best.size(), item["top_logprobs"].size());
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_EQ(best[i].token_id, item["top_logprobs"][i][0].get<int32_t>());
      // f32 logprobs of up to about 40.
      EXPECT_NEAR(best[i].logprob, item["top_logprobs"][i][1].get<double>(), 4e-6);
      EXPECT_EQ(logprob_of(logits, best[i].token_id).logprob, best[i].logprob);
    }
  }
}

TEST(Sampler, ChoosesTheLowestIdOfEquals) {
  SamplingParams params;
  params.temperature = 0;
  SamplerScratch scratch;
  SampledToken chosen;
  Sampler greedy = make_sampler(params);
  ASSERT_EQ(greedy.sample(std::vector<float>{0, 2, 2, 2}, scratch, chosen), SampleStatus::kChosen);
  EXPECT_EQ(chosen.token_id, 1);
  params.temperature = 1;
  params.top_k = 2;
  EXPECT_THAT(probabilities(make_sampler(params), {0, 2, 2, 2}),
              ElementsAre(testing::Pair(1, 0.5), testing::Pair(2, 0.5)));
}

TEST(Sampler, DrawsAccordingToTheProbabilities) {
  constexpr int kNumDraws = 20'000;
  SamplingParams params;
  params.temperature = 0.8;
  params.top_p = 0.97;
  params.seed = 42;
  std::vector<float> logits(50);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(4 * random_uniform(3, i));
  }
  Sampler sampler = make_sampler(params);
  const std::map<int32_t, double> expected = probabilities(sampler, logits);
  std::map<int32_t, int> counts;
  SamplerScratch scratch;
  SampledToken chosen;
  for (int i = 0; i < kNumDraws; ++i) {
    ASSERT_EQ(sampler.sample(logits, scratch, chosen), SampleStatus::kChosen);
    ++counts[chosen.token_id];
  }
  double chi_square = 0;
  int num_counted = 0;
  for (const auto& [id, probability] : expected) {
    const double mean = probability * kNumDraws;
    chi_square += (counts[id] - mean) * (counts[id] - mean) / mean;
    num_counted += counts[id];
  }
  EXPECT_EQ(num_counted, kNumDraws) << "a token was drawn that had been filtered out";
  const auto num_degrees = static_cast<double>(expected.size() - 1);
  ASSERT_GT(num_degrees, 20);
  // Mean n and variance 2n; within three standard deviations on both sides.
  EXPECT_NEAR(chi_square, num_degrees, 3 * std::sqrt(2 * num_degrees));
}

TEST(Sampler, DrawsDependOnSeedAndIndexAlone) {
  SamplingParams params;
  params.seed = 5;
  const std::vector<float> logits(1000, 0.0f);
  SamplerScratch scratch;
  const auto draw_ten = [&](Sampler sampler) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 10; ++i) {
      SampledToken chosen;
      EXPECT_EQ(sampler.sample(logits, scratch, chosen), SampleStatus::kChosen);
      ids.push_back(chosen.token_id);
    }
    return ids;
  };
  const std::vector<int32_t> first = draw_ten(make_sampler(params));
  EXPECT_EQ(draw_ten(make_sampler(params)), first);
  params.seed = 6;
  EXPECT_NE(draw_ten(make_sampler(params)), first);
}

TEST(Sampler, ReportsLogitsThatAreNoNumbers) {
  SamplerScratch scratch;
  SampledToken chosen;
  Sampler sampler = make_sampler({});
  EXPECT_EQ(sampler.sample(std::vector<float>{0, kNan}, scratch, chosen), SampleStatus::kNotFinite);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, kInfinity}, scratch, chosen),
            SampleStatus::kNotFinite);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -kInfinity}, scratch, chosen),
            SampleStatus::kNothingLeft);
  EXPECT_EQ(sampler.num_output_tokens(), 0);
  ASSERT_EQ(sampler.sample(std::vector<float>{-kInfinity, 0}, scratch, chosen),
            SampleStatus::kChosen);
  EXPECT_EQ(chosen.token_id, 1);
}

TEST(Sampler, MasksStopIdsUntilMinTokens) {
  SamplingParams params;
  params.temperature = 0;
  params.min_tokens = 2;
  const std::vector<float> logits = {0, 1, 9};
  SamplerScratch scratch;
  SampledToken chosen;
  Sampler sampler = make_sampler(params, {2});
  std::vector<int32_t> ids;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(sampler.sample(logits, scratch, chosen), SampleStatus::kChosen);
    ids.push_back(chosen.token_id);
  }
  EXPECT_THAT(ids, ElementsAre(1, 1, 2));
  EXPECT_EQ(make_sampler(params, {0, 1, 2}).filter(logits, scratch), SampleStatus::kNothingLeft);
}

TEST(Sampler, SurvivesTheExtremesOfItsParameters) {
  SamplingParams params;
  params.temperature = std::numeric_limits<double>::denorm_min();
  params.repetition_penalty = std::numeric_limits<double>::denorm_min();
  params.top_p = std::numeric_limits<double>::denorm_min();
  params.min_p = 1;
  EXPECT_THAT(probabilities(make_sampler(params, {}, {0, 1}), {5, 4, -3e38f, 3e38f}),
              ElementsAre(testing::Pair(0, 1.0)));
  params.repetition_penalty = std::numeric_limits<double>::max();
  EXPECT_THAT(probabilities(make_sampler(params, {}, {0, 1}), {-5, 4, -3e38f, 3e38f}),
              ElementsAre(testing::Pair(3, 1.0)));
}

TEST(Sampler, GivesLogprobsOfTheUntouchedLogits) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{0, 100}};
  params.num_logprobs = 2;
  SamplerScratch scratch;
  SampledToken chosen;
  Sampler sampler = make_sampler(params);
  ASSERT_EQ(sampler.sample(std::vector<float>{0, std::log(2.0f), 0}, scratch, chosen),
            SampleStatus::kChosen);
  EXPECT_EQ(chosen.token_id, 0);
  EXPECT_NEAR(chosen.logprob->logprob, std::log(0.25), 1e-6);
  ASSERT_EQ(chosen.top_logprobs.size(), 2u);
  EXPECT_EQ(chosen.top_logprobs[0].token_id, 1);
  EXPECT_NEAR(chosen.top_logprobs[0].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(chosen.top_logprobs[1].token_id, 0);
}

// Cases of llama.cpp's own tests (tests/test-sampling.cpp, test_xtc), by the tokens that are left.
TEST(Sampler, LeavesOutTheTokensThatXtcOfLlamaCppDoes) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  const auto left_at = [&](double threshold, double temperature) {
    SamplingParams params;
    params.xtc_probability = 1;
    params.xtc_threshold = threshold;
    params.temperature = temperature;
    std::vector<int32_t> ids;
    for (const auto& [id, probability] : probabilities(make_sampler(params), logits)) {
      ids.push_back(id);
    }
    return ids;
  };
  for (const double temperature : {0.5, 1.0, 2.0}) {
    EXPECT_THAT(left_at(0.09, temperature), ElementsAre(3));
    EXPECT_THAT(left_at(0.19, temperature), ElementsAre(2, 3));
    EXPECT_THAT(left_at(0.29, temperature), ElementsAre(1, 2, 3));
    EXPECT_THAT(left_at(0.39, temperature), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(left_at(0.51, temperature), ElementsAre(0, 1, 2, 3));
  }
  // The best of those that are left, whatever the temperature.
  EXPECT_THAT(left_at(0.19, 0), ElementsAre(2));
  EXPECT_THAT(left_at(0.39, 0), ElementsAre(0));
  EXPECT_THAT(left_at(0.19, 1e-6), ElementsAre(2));
}

TEST(Sampler, AppliesXtcToWhatTheFiltersLeave) {
  SamplingParams params;
  params.xtc_probability = 1;
  params.xtc_threshold = 0.25;
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  params.top_k = 3;  // 4/9, 3/9 and 2/9 are left
  EXPECT_THAT(probabilities(make_sampler(params), logits),
              ElementsAre(testing::Pair(1, testing::DoubleNear(0.6, 1e-6)),
                          testing::Pair(2, testing::DoubleNear(0.4, 1e-6))));
  params.top_k = 1;
  EXPECT_THAT(probabilities(make_sampler(params), logits), ElementsAre(testing::Pair(0, 1.0)));
}

// The share of the tokens that are drawn is the mixture of the distributions with and without XTC.
TEST(Sampler, AppliesXtcAsOftenAsItsProbabilitySays) {
  constexpr int kNumDraws = 20'000;
  constexpr double kShare = 0.3;
  SamplingParams params;
  params.seed = 9;
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  const auto draw = [&](const SamplingParams& drawn) {
    Sampler sampler = make_sampler(drawn);
    SamplerScratch scratch;
    SampledToken chosen;
    std::vector<int32_t> ids;
    for (int i = 0; i < kNumDraws; ++i) {
      EXPECT_EQ(sampler.sample(logits, scratch, chosen), SampleStatus::kChosen);
      ids.push_back(chosen.token_id);
    }
    return ids;
  };
  const std::vector<int32_t> without = draw(params);
  params.xtc_probability = kShare;
  params.xtc_threshold = 0.15;  // tokens 0 and 1 are left out; 2 and 3 have 2/3 and 1/3
  const std::vector<int32_t> with = draw(params);
  EXPECT_EQ(draw(params), with) << "the same seed gives the same tokens";
  const double expected[] = {0.4 * (1 - kShare), 0.3 * (1 - kShare),
                             0.2 * (1 - kShare) + kShare * 2 / 3, 0.1 * (1 - kShare) + kShare / 3};
  double chi_square = 0;
  for (int32_t id = 0; id < 4; ++id) {
    const double mean = expected[id] * kNumDraws;
    const auto count = static_cast<double>(std::count(with.begin(), with.end(), id));
    chi_square += (count - mean) * (count - mean) / mean;
  }
  EXPECT_LT(chi_square, 11.34);  // the 99th percentile for three degrees of freedom
  // If XTC is not drawn, a token is the one of the same seed without it.
  int num_equal = 0;
  for (size_t i = 0; i < with.size(); ++i) num_equal += with[i] == without[i];
  EXPECT_GT(num_equal, kNumDraws * (1 - kShare) * 0.99);
  params.xtc_probability = 0;
  EXPECT_EQ(draw(params), without);
}

}  // namespace
}  // namespace halley
