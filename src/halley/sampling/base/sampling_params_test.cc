#include "halley/sampling/base/sampling_params.h"

#include <limits>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::StrEq;
using testing::ThrowsMessage;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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
    {"top_k: expected at least -1, got -2", [](SamplingParams& p) { p.top_k = -2; }},
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
    {"stop: expected no empty string, got one",
     [](SamplingParams& p) {
       p.stop = {"a", ""};
     }},
    {"stop: expected at most 4096 bytes in all strings, got 4097",
     [](SamplingParams& p) {
       p.stop = {std::string(4000, 'a'), std::string(97, 'b')};
     }},
    {"stop: expected valid UTF-8, got \"\\xc3\"", [](SamplingParams& p) { p.stop = {"\xC3"}; }},
    {"stop: expected at most 64 entries, got 65",
     [](SamplingParams& p) { p.stop.assign(65, "a"); }},
    {"stop_token_ids: expected at most 128 entries, got 129",
     [](SamplingParams& p) { p.stop_token_ids.assign(129, 0); }},
    {"stop_token_ids: expected token ids of 0 to 99, got -1",
     [](SamplingParams& p) { p.stop_token_ids = {-1}; }},
    {"dry_multiplier: expected 0 to 100, got -1", [](SamplingParams& p) { p.dry_multiplier = -1; }},
    {"dry_base: expected 1 to 100, got 0.5", [](SamplingParams& p) { p.dry_base = 0.5; }},
    {"dry_allowed_length: expected at least 0, got -1",
     [](SamplingParams& p) { p.dry_allowed_length = -1; }},
    {"dry_penalty_last_n: expected at least -1, got -2",
     [](SamplingParams& p) { p.dry_penalty_last_n = -2; }},
    {"xtc_probability: expected 0 to 1, got 1.5",
     [](SamplingParams& p) { p.xtc_probability = 1.5; }},
    {"xtc_threshold: expected 0 to 1, got -1", [](SamplingParams& p) { p.xtc_threshold = -1; }},
    {"dry_sequence_breakers: expected texts of 1 to 64 bytes, got 0",
     [](SamplingParams& p) { p.dry_sequence_breakers = {""}; }},
    {"dry_sequence_breakers: expected texts of 1 to 64 bytes, got 65",
     [](SamplingParams& p) { p.dry_sequence_breakers = {std::string(65, 'a')}; }},
    {"dry_sequence_breakers: expected valid UTF-8, got \"\\xc3\"",
     [](SamplingParams& p) { p.dry_sequence_breakers = {"\xC3"}; }},
    {"dry_sequence_breakers: expected at most 32 entries, got 33",
     [](SamplingParams& p) { p.dry_sequence_breakers.assign(33, "a"); }},
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
  EXPECT_EQ(choice.params.temperature, 0.5);
  EXPECT_EQ(choice.params.top_k, -1);
  EXPECT_EQ(choice.params.top_p, 0.25);
  EXPECT_EQ(choice.params.min_p, 0.125);
  EXPECT_EQ(choice.params.repetition_penalty, 1.5);
  EXPECT_EQ(choice.params.presence_penalty, 0.75);
  EXPECT_EQ(choice.params.frequency_penalty, 0.375);
  EXPECT_THAT(choice.logit_bias, ElementsAre(std::pair(3, 4.0), std::pair(7, -2.0)));
  EXPECT_THAT(choice.stop_ids, ElementsAre(2, 9));
  EXPECT_EQ(choice.min_tokens, 6);
  EXPECT_EQ(choice.seed, 42u);
  EXPECT_EQ(choice.num_logprobs, 5);
  params.seed = 8;
  params.top_k = 3;
  choice = token_choice_of(params, {}, 42);
  EXPECT_EQ(choice.seed, 8u);
  EXPECT_EQ(choice.params.top_k, 3);
}

}  // namespace
}  // namespace halley
