#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/core/philox.h"
#include "halley/engine/sampler.h"
#include "halley/engine/sampling_params.h"
#include "halley/engine/stop_matcher.h"
#include "halley/json/json.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StrEq;
using testing::ThrowsMessage;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- check_sampling_params

struct BadParams {
  const char* message;
  void (*spoil)(SamplingParams&);
};

class CheckSamplingParams : public testing::TestWithParam<BadParams> {};

TEST_P(CheckSamplingParams, NamesTheFieldTheRangeAndTheValue) {
  SamplingParams params;
  GetParam().spoil(params);
  EXPECT_THAT([&] { check_sampling_params(params, 100); },
              ThrowsMessage<InputError>(StrEq(GetParam().message)));
}

const BadParams kBadParams[] = {
    {"max_tokens: expected at least 1, got 0", [](SamplingParams& p) { p.max_tokens = 0; }},
    {"min_tokens: expected 0 to max_tokens (16), got -1",
     [](SamplingParams& p) { p.min_tokens = -1; }},
    {"min_tokens: expected 0 to max_tokens (16), got 17",
     [](SamplingParams& p) { p.min_tokens = 17; }},
    {"temperature: expected 0 to 2, got 3", [](SamplingParams& p) { p.temperature = 3; }},
    {"temperature: expected 0 to 2, got -0.5", [](SamplingParams& p) { p.temperature = -0.5; }},
    {"temperature: expected 0 to 2, got nan", [](SamplingParams& p) { p.temperature = kNan; }},
    {"top_k: expected -1 or 0 (all) or at least 1, got -2",
     [](SamplingParams& p) { p.top_k = -2; }},
    {"top_p: expected above 0 and at most 1, got 0", [](SamplingParams& p) { p.top_p = 0; }},
    {"top_p: expected above 0 and at most 1, got 1.5", [](SamplingParams& p) { p.top_p = 1.5; }},
    {"top_p: expected above 0 and at most 1, got nan", [](SamplingParams& p) { p.top_p = kNan; }},
    {"min_p: expected 0 to 1, got 1.5", [](SamplingParams& p) { p.min_p = 1.5; }},
    {"min_p: expected 0 to 1, got -1", [](SamplingParams& p) { p.min_p = -1; }},
    {"repetition_penalty: expected a finite number above 0, got 0",
     [](SamplingParams& p) { p.repetition_penalty = 0; }},
    {"repetition_penalty: expected a finite number above 0, got inf",
     [](SamplingParams& p) { p.repetition_penalty = kInfinity; }},
    {"repetition_penalty: expected a finite number above 0, got nan",
     [](SamplingParams& p) { p.repetition_penalty = kNan; }},
    {"presence_penalty: expected -2 to 2, got 2.5",
     [](SamplingParams& p) { p.presence_penalty = 2.5; }},
    {"frequency_penalty: expected -2 to 2, got -3",
     [](SamplingParams& p) { p.frequency_penalty = -3; }},
    {"logit_bias: expected token ids of 0 to 99, got 100",
     [](SamplingParams& p) { p.logit_bias[100] = 1; }},
    {"logit_bias: expected -100 to 100, got 101", [](SamplingParams& p) { p.logit_bias[1] = 101; }},
    {"logit_bias: expected at most 1024 entries, got 1025",
     [](SamplingParams& p) {
       for (int32_t id = 0; id < 1025; ++id) p.logit_bias[id] = 0;
     }},
    {"stop: expected strings of 1 to 1024 bytes, got one of 0",
     [](SamplingParams& p) {
       p.stop = {"a", ""};
     }},
    {"stop: expected strings of 1 to 1024 bytes, got one of 1025",
     [](SamplingParams& p) { p.stop = {std::string(1025, 'a')}; }},
    {"stop: expected valid UTF-8, got \"\\xc3\"", [](SamplingParams& p) { p.stop = {"\xC3"}; }},
    {"stop: expected at most 16 entries, got 17",
     [](SamplingParams& p) { p.stop.assign(17, "a"); }},
    {"stop_token_ids: expected at most 128 entries, got 129",
     [](SamplingParams& p) { p.stop_token_ids.assign(129, 0); }},
    {"stop_token_ids: expected token ids of 0 to 99, got -1",
     [](SamplingParams& p) { p.stop_token_ids = {-1}; }},
    {"logprobs: expected -1 (none) to 20, got 21", [](SamplingParams& p) { p.num_logprobs = 21; }},
    {"logprobs: expected -1 (none) to 20, got -2", [](SamplingParams& p) { p.num_logprobs = -2; }},
};
INSTANTIATE_TEST_SUITE_P(Cases, CheckSamplingParams, testing::ValuesIn(kBadParams));

TEST(CheckSamplingParams, AcceptsTheEndsOfTheRanges) {
  SamplingParams params;
  params.max_tokens = params.min_tokens = 1;
  params.temperature = 2;
  params.top_k = -1;
  params.top_p = params.min_p = 1;
  params.repetition_penalty = 1e-300;
  params.presence_penalty = -2;
  params.frequency_penalty = 2;
  params.logit_bias = {{0, -100}, {99, 100}};
  params.stop = {std::string(1024, 'a'), "\xC3\xA9"};
  params.stop_token_ids.assign(128, 99);
  params.num_logprobs = 20;
  EXPECT_NO_THROW(check_sampling_params(params, 100));
}

// ---- Philox

// The known answers that are published with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesThePublishedNumbers) {
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8));
  EXPECT_THAT(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD));
  EXPECT_THAT(
      philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
      ElementsAre(0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1));
}

TEST(Philox, UsesAllBitsOfSeedAndIndex) {
  EXPECT_EQ(random_bits(0, 0), 0xE169C58D6627E8D5);
  EXPECT_NE(random_bits(uint64_t{1} << 63, 0), random_bits(0, 0));
  EXPECT_NE(random_bits(0, uint64_t{1} << 63), random_bits(0, 0));
}

TEST(Philox, IsUniformInZeroToOne) {
  double sum = 0;
  for (uint64_t index = 0; index < 10'000; ++index) {
    const double value = random_uniform(7, index);
    ASSERT_TRUE(value >= 0 && value < 1) << value;
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.01);  // 3.5 standard deviations
}

// ---- TokenChoice

TEST(TokenChoiceOf, HasEveryNumberOfTheParameters) {
  SamplingParams params;
  params.temperature = 0.5;
  params.top_k = -1;
  params.top_p = 0.25;
  params.min_p = 0.125;
  params.repetition_penalty = 1.5;
  params.presence_penalty = 0.75;
  params.frequency_penalty = 0.375;
  params.logit_bias = {{7, -2}, {3, 4}};
  params.min_tokens = 6;
  params.num_logprobs = 5;
  TokenChoice choice = token_choice_of(params, {9, 2, 9}, 42);
  EXPECT_EQ(choice.temperature, 0.5);
  EXPECT_EQ(choice.top_k, 0);
  EXPECT_EQ(choice.top_p, 0.25);
  EXPECT_EQ(choice.min_p, 0.125);
  EXPECT_EQ(choice.repetition_penalty, 1.5);
  EXPECT_EQ(choice.presence_penalty, 0.75);
  EXPECT_EQ(choice.frequency_penalty, 0.375);
  EXPECT_THAT(choice.logit_bias, ElementsAre(std::pair(3, 4.0), std::pair(7, -2.0)));
  EXPECT_THAT(choice.stop_ids, ElementsAre(2, 9));
  EXPECT_EQ(choice.min_tokens, 6);
  EXPECT_EQ(choice.seed, 42u);
  EXPECT_EQ(choice.num_logprobs, 5);
  params.seed = 8;
  params.top_k = 3;
  choice = token_choice_of(params, {}, 42);
  EXPECT_EQ(choice.seed, 8u);
  EXPECT_EQ(choice.top_k, 3);
}

// ---- Sampler

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
  params.temperature = json.value("temperature", params.temperature);
  params.top_k = json.value("top_k", params.top_k);
  params.top_p = json.value("top_p", params.top_p);
  params.min_p = json.value("min_p", params.min_p);
  params.repetition_penalty = json.value("repetition_penalty", params.repetition_penalty);
  params.presence_penalty = json.value("presence_penalty", params.presence_penalty);
  params.frequency_penalty = json.value("frequency_penalty", params.frequency_penalty);
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

// ---- StopMatcher

TEST(StopMatcher, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher matcher({"</end>"}, /*includes_stop=*/false);
  EXPECT_EQ(matcher.push("ab <", true).text, "ab ");
  EXPECT_EQ(matcher.push("/e", true).text, "");
  EXPECT_EQ(matcher.push("</en", true).text, "</e");
  const StopMatcher::Piece piece = matcher.push("d> never seen", true);
  EXPECT_EQ(piece.text, "");
  EXPECT_EQ(piece.stop_index, 0u);
}

TEST(StopMatcher, GivesHeldTextBackAtTheEnd) {
  StopMatcher matcher({"stop"}, false);
  EXPECT_EQ(matcher.push("a st", true).text, "a ");
  EXPECT_EQ(matcher.finish(), "st");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, IncludesTheStopStringOnDemand) {
  StopMatcher matcher({"b"}, /*includes_stop=*/true);
  EXPECT_EQ(matcher.push("abc", true).text, "ab");
}

TEST(StopMatcher, TakesTheFirstToEndAndOfThoseTheLongest) {
  EXPECT_EQ(StopMatcher({"abcd", "c"}, false).push("abcd", true).text, "ab");
  StopMatcher longest({"c", "bc", "bc"}, false);
  const StopMatcher::Piece piece = longest.push("abcd", true);
  EXPECT_EQ(piece.text, "a");
  EXPECT_EQ(piece.stop_index, 1u);
}

TEST(StopMatcher, PassesOverStopStringsThatDoNotCount) {
  StopMatcher matcher({"aa"}, false);
  EXPECT_EQ(matcher.push("xaa", false).text, "xa");
  const StopMatcher::Piece piece = matcher.push("a", true);  // completes one with the last a
  EXPECT_TRUE(piece.stop_index);
  EXPECT_EQ(piece.text, "");
}

// Text of two letters against all stop strings at once is where matches overlap most.
TEST(StopMatcher, FindsWhatAPlainSearchFindsHoweverTheTextIsCut) {
  std::mt19937_64 random(1);
  const auto word = [&](size_t length_max) {
    std::string text(1 + random() % length_max, 'a');
    for (char& c : text) c = random() % 2 == 0 ? 'a' : 'b';
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::string text = word(60);
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = word(8);
    SCOPED_TRACE(str("text ", text, ", stops ", stops));
    size_t end_min = std::string::npos, length = 0;
    for (const std::string& stop : stops) {
      const size_t begin = text.find(stop);
      if (begin == std::string::npos) continue;
      const size_t end = begin + stop.size();
      if (end < end_min || (end == end_min && stop.size() > length)) {
        end_min = end;
        length = stop.size();
      }
    }
    const bool is_found = end_min != std::string::npos;
    StopMatcher matcher(stops, false);
    std::string actual;
    bool was_found = false;
    for (size_t i = 0; i < text.size() && !was_found;) {
      const size_t count = 1 + random() % 5;
      const StopMatcher::Piece piece = matcher.push(text.substr(i, count), true);
      actual += piece.text;
      was_found = piece.stop_index.has_value();
      i += count;
    }
    if (!was_found) actual += matcher.finish();
    ASSERT_EQ(was_found, is_found);
    ASSERT_EQ(actual, is_found ? text.substr(0, end_min - length) : text);
  }
}

}  // namespace
}  // namespace halley
