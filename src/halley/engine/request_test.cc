// Tests of single requests: text, stop strings, finish reasons, log probabilities.
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/engine/testing/engine_fixture.h"

namespace halley {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class RequestOn : public OnFakeModels {};
INSTANTIATE_TEST_SUITE_P(Models, RequestOn, fake_devices(), name_of_fake_device);

SamplingParams with_stop(std::vector<std::string> stop) {
  SamplingParams params;
  params.max_tokens = 1000;
  params.stop = std::move(stop);
  return params;
}

TEST_P(RequestOn, EndsAtEosWithoutItsText) {
  SamplingParams params = with_stop({});
  params.skip_special_tokens = false;
  const GenerateResult result = generate_text("hello", params);
  EXPECT_EQ(result.text, "hello");
  EXPECT_THAT(result.token_ids, SizeIs(6));
  EXPECT_EQ(result.token_ids.back(), kFakeEos);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.stop_reason, "<|eos|>");
}

TEST_P(RequestOn, ShowsTheStopTokenIfRequested) {
  SamplingParams params = with_stop({});
  params.skip_special_tokens = false;
  params.include_stop_str_in_output = true;
  EXPECT_EQ(generate_text("hello", params).text, "hello<|eos|>");
}

TEST_P(RequestOn, IgnoresEosIfRequested) {
  SamplingParams params = with_stop({});
  params.ignore_eos = true;
  params.max_tokens = 8;
  const GenerateResult result = generate_text("hello", params);
  EXPECT_THAT(result.token_ids, SizeIs(8));
  EXPECT_EQ(result.text, "hello");
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
}

TEST_P(RequestOn, EndsAtStopTokenIds) {
  SamplingParams params = with_stop({});
  params.stop_token_ids = {*fake_tokenizer()->id_of("l")};
  const GenerateResult result = generate_text("hello", params);
  EXPECT_EQ(result.text, "he");
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.stop_reason, "l");
}

TEST_P(RequestOn, EndsAtAStopStringThatSpansTokens) {
  const GenerateResult result = generate_text("wait stop here", with_stop({"t stop h"}));
  EXPECT_EQ(result.text, "wai");
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.stop_reason, "t stop h");
  EXPECT_THAT(result.token_ids, SizeIs(8));  // w a i t _ stop _ h
}

TEST_P(RequestOn, IncludesTheStopStringIfRequestedAndNothingAfterIt) {
  SamplingParams params = with_stop({"st"});
  params.include_stop_str_in_output = true;
  EXPECT_EQ(generate_text("wait stop here", params).text, "wait st");
}

TEST_P(RequestOn, HoldsBackNoMoreThanWhatMayBeAStopString) {
  std::vector<std::string> pieces;
  const auto engine =
      fake_engine(fake_model(scripted_logits(fake_tokenizer()->encode("aabbaac", false), 1)));
  GenerateRequest request = greedy_request({1});
  request.sampling.stop = {"aac!"};
  const auto keep_text = [&](size_t, const TokenEvent& event) { pieces.push_back(event.text); };
  const GenerateResult result = generate_all(*engine, {request}, keep_text)[0];
  EXPECT_THAT(pieces, ElementsAre("", "", "aab", "b", "", "", "", "aac"));
  EXPECT_EQ(result.text, "aabbaac");
}

TEST_P(RequestOn, TakesNoStopBeforeMinTokens) {
  SamplingParams params = with_stop({"a"});
  params.min_tokens = 3;
  EXPECT_EQ(generate_text("aaaaa", params).text, "aaa");
  params.stop.clear();
  params.stop_token_ids = {*fake_tokenizer()->id_of("a")};
  const GenerateResult result = generate_text("aaaaa", params);
  EXPECT_THAT(result.token_ids, SizeIs(4));
  EXPECT_EQ(result.token_ids.back(), params.stop_token_ids[0]);
}

TEST_P(RequestOn, EndsAtMaxTokensWithAllText) {
  SamplingParams params = with_stop({"hello world"});
  params.max_tokens = 3;
  const GenerateResult result = generate_text("hello", params);
  EXPECT_EQ(result.text, "hel");
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
}

TEST_P(RequestOn, EndsAtMaxModelLen) {
  EngineConfig config;
  config.max_model_len = 10;
  const auto engine =
      fake_engine(fake_model(scripted_logits(std::vector<int32_t>(50, 20), 4)), config);
  const GenerateResult result = generate_one(*engine, greedy_request({1, 2, 3, 4}, 50));
  EXPECT_THAT(result.token_ids, SizeIs(6));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
}

TEST_P(RequestOn, NeverEmitsHalfACharacter) {
  std::vector<std::string> pieces;
  const auto engine = fake_engine(
      fake_model(scripted_logits(fake_tokenizer()->encode("x\xE2\x82\xACy\xC3", false), 1)));
  const auto keep_text = [&](size_t, const TokenEvent& event) { pieces.push_back(event.text); };
  static_cast<void>(generate_all(*engine, {greedy_request({1})}, keep_text));
  EXPECT_THAT(pieces, ElementsAre("x", "", "", "\xE2\x82\xAC", "y", "", "\xEF\xBF\xBD"));
}

TEST_P(RequestOn, PiecesOfTextJoinedAreTheTextOfAllTokens) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> script(1 + random() % 40);
    for (int32_t& id : script) {
      id = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(fake_vocab_size() - 1));
    }
    const auto engine = fake_engine(fake_model(scripted_logits(script, 1)));
    GenerateRequest request = greedy_request({1}, 1000);
    request.sampling.skip_special_tokens = round % 2 == 0;
    if (round % 3 == 0) request.sampling.stop = {"never this", "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"};
    const GenerateResult result = generate_one(*engine, request);
    ASSERT_EQ(result.text, fake_tokenizer()->decode(script, request.sampling.skip_special_tokens))
        << "round " << round << ", ids " << str(script);
  }
}

TEST_P(RequestOn, GivesLogprobsOfTheRawLogits) {
  GenerateRequest request = greedy_request({3, 4}, 5);
  request.sampling.num_logprobs = 3;
  request.sampling.frequency_penalty = 2;
  request.sampling.ignore_eos = true;
  const auto engine = fake_engine(fake_model());
  const GenerateResult result = generate_one(*engine, request);
  ASSERT_THAT(result.logprobs, SizeIs(5));
  std::vector<int32_t> tokens = request.prompt_ids;
  std::vector<float> logits(static_cast<size_t>(fake_vocab_size()));
  for (size_t i = 0; i < 5; ++i) {
    hashed_logits(tokens, logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    const int32_t id = result.token_ids[i];
    EXPECT_EQ(result.logprobs[i].token_id, id);
    EXPECT_NEAR(result.logprobs[i].logprob, logits[static_cast<size_t>(id)] - std::log(sum), 1e-6);
    ASSERT_THAT(result.top_logprobs[i], SizeIs(3));
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    EXPECT_EQ(result.top_logprobs[i][0].token_id, best);
    EXPECT_GE(result.top_logprobs[i][1].logprob, result.top_logprobs[i][2].logprob);
    tokens.push_back(id);
  }
}

TEST_P(RequestOn, EndsAloneIfItsLogitsAreNotFinite) {
  const auto logits_of = [](std::span<const int32_t> tokens, std::span<float> logits) {
    hashed_logits(tokens, logits);
    if (tokens[0] == 7 && tokens.size() == 4) logits[5] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto engine = fake_engine(fake_model(logits_of));
  std::vector<GenerateRequest> requests = {greedy_request({7, 8}, 9), greedy_request({6, 8}, 9)};
  for (GenerateRequest& request : requests) request.sampling.ignore_eos = true;
  const std::vector<GenerateResult> results = generate_all(*engine, requests);
  EXPECT_EQ(results[0].finish_reason, FinishReason::kError);
  EXPECT_THAT(results[0].error, HasSubstr("logits: expected finite numbers, got NaN"));
  EXPECT_THAT(results[0].token_ids, SizeIs(2));
  EXPECT_EQ(results[1].finish_reason, FinishReason::kLength);
  EXPECT_THAT(results[1].token_ids, SizeIs(9));
}

TEST_P(RequestOn, SaysThatNoTokenIsLeft) {
  const auto logits_of = [](std::span<const int32_t>, std::span<float> logits) {
    for (float& logit : logits) logit = -std::numeric_limits<float>::infinity();
    logits[kFakeEos] = 0;
  };
  GenerateRequest request = greedy_request({1});
  request.sampling.min_tokens = 1;
  const GenerateResult result = generate_one(*fake_engine(fake_model(logits_of)), request);
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_THAT(result.error, HasSubstr("expected at least one token that may be chosen, got none"));
}

TEST_P(RequestOn, EndsWhereTheTokenizerDoesNotKnowAToken) {
  const int64_t vocab_size = fake_vocab_size() + 1;
  const auto last_token = static_cast<int32_t>(vocab_size - 1);
  const auto engine =
      fake_engine(fake_model(scripted_logits({20, last_token, 20}, 1), {.vocab_size = vocab_size}));
  const GenerateResult result = generate_one(*engine, greedy_request({1}));
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_THAT(result.error, HasSubstr(str("got ", last_token)));
  EXPECT_THAT(result.token_ids, ElementsAre(20, last_token));
}

TEST_P(RequestOn, CarriesNoTextWithoutATokenizer) {
  Engine engine(fake_model(), nullptr, {}, {});
  const GenerateResult result = generate_one(engine, greedy_request({1}, 5));
  EXPECT_EQ(result.text, "");
  EXPECT_THAT(result.token_ids, SizeIs(5));
}

TEST_P(RequestOn, SameSeedGivesTheSameTextAndNoSeedAnother) {
  const auto flat = [](std::span<const int32_t>, std::span<float> logits) {
    for (float& logit : logits) logit = 0;
  };
  const auto engine = fake_engine(fake_model(flat));
  GenerateRequest request = greedy_request({1}, 30);
  request.sampling.temperature = 1;
  request.sampling.ignore_eos = true;
  const std::vector<GenerateResult> unseeded = generate_all(*engine, {request, request});
  EXPECT_NE(unseeded[0].token_ids, unseeded[1].token_ids);  // 43^30 texts
  request.sampling.seed = 1;
  const std::vector<GenerateResult> seeded = generate_all(*engine, {request, request});
  EXPECT_EQ(seeded[0].token_ids, seeded[1].token_ids);
}

TEST_P(RequestOn, MeasuresEveryToken) {
  const auto engine = fake_engine(fake_model());
  const GenerateResult result = generate_one(*engine, greedy_request({1, 2, 3}, 10));
  ASSERT_EQ(result.token_seconds.size(), result.token_ids.size());
  EXPECT_GT(result.token_seconds[0], 0);
  EXPECT_TRUE(std::is_sorted(result.token_seconds.begin(), result.token_seconds.end()));
  EXPECT_GE(result.total_seconds, result.token_seconds.back());
}

TEST_P(RequestOn, WaitsUntilTheQueueHasSpace) {
  EngineConfig config;
  config.max_num_queued = 1;
  config.max_num_seqs = 2;
  const auto engine = fake_engine(fake_model(), config);
  std::vector<GenerateRequest> requests(20, greedy_request({1, 2}, 5));
  for (GenerateRequest& request : requests) request.sampling.ignore_eos = true;
  for (const GenerateResult& result : generate_all(*engine, requests)) {
    EXPECT_EQ(result.submit.status, Submit::kQueued);
    EXPECT_THAT(result.token_ids, SizeIs(5));
  }
}

TEST_P(RequestOn, ReportsWhatWasNotQueued) {
  const auto engine = fake_engine(fake_model());
  const std::vector<GenerateResult> results =
      generate_all(*engine, {greedy_request({}), greedy_request({1}, 3)});
  EXPECT_EQ(results[0].submit.status, Submit::kInvalid);
  EXPECT_EQ(results[0].submit.message, "prompt_ids: expected at least 1 token, got 0");
  EXPECT_EQ(results[1].submit.status, Submit::kQueued);
}

class ConstrainedRequest : public OnFakeModels {
 protected:
  // Output under the pattern's constraint, from a model that prefers `script` and then EOS.
  static GenerateResult generate_constrained(const std::string& pattern, const std::string& script,
                                             const SamplingParams& sampling) {
    GenerateRequest request = greedy_request({1}, 1000);
    request.sampling = sampling;
    request.sampling.temperature = 0;
    request.constraint = fake_constraint(pattern);
    const auto engine =
        fake_engine(fake_model(scripted_logits(fake_tokenizer()->encode(script, false), 1)));
    return generate_one(*engine, std::move(request));
  }
};
INSTANTIATE_TEST_SUITE_P(Models, ConstrainedRequest, fake_devices(), name_of_fake_device);

TEST_P(ConstrainedRequest, WritesWhatTheConstraintAllows) {
  const GenerateResult result = generate_constrained("^a(?:xyz|b)q$", "azzz", with_stop({}));
  EXPECT_EQ(result.text, "abq");  // of equal logits the lower id
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST_P(ConstrainedRequest, EndsWhereNothingMayFollowWithoutAStepForEos) {
  const GenerateResult result = generate_constrained("^hello$", "hello there", with_stop({}));
  EXPECT_EQ(result.text, "hello");
  EXPECT_THAT(result.token_ids, SizeIs(5));
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.stop_reason, "");
}

TEST_P(ConstrainedRequest, EndsAtEosWhereTheOutputMayEndAndNotBefore) {
  // The model prefers EOS after "ab", where only a letter is allowed.
  const GenerateResult result = generate_constrained("^ab[cd]z*$", "ab", with_stop({}));
  EXPECT_EQ(result.text, "abc");
  EXPECT_EQ(result.token_ids.back(), kFakeEos);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST_P(ConstrainedRequest, EndsAtEosEvenWhereEosIsIgnored) {
  SamplingParams params = with_stop({});
  params.ignore_eos = true;
  const GenerateResult result = generate_constrained("^ab*$", "ab", params);
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST_P(ConstrainedRequest, GoesOnToMinTokensWhereItMay) {
  SamplingParams params = with_stop({});
  params.min_tokens = 4;
  EXPECT_THAT(generate_constrained("^ab*$", "ab", params).token_ids, SizeIs(5));
  // If the constraint allows only EOS, min_tokens is ignored.
  const GenerateResult result = generate_constrained("^ab$", "ab", params);
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST_P(ConstrainedRequest, EndsAtStopStringsToo) {
  const GenerateResult result = generate_constrained("^a*xb*$", "aaxbb", with_stop({"xb"}));
  EXPECT_EQ(result.text, "aa");
  EXPECT_EQ(result.stop_reason, "xb");
}

TEST_P(ConstrainedRequest, IsNotOpenedByLogitBias) {
  SamplingParams params = with_stop({});
  params.logit_bias = {{*fake_tokenizer()->id_of("q"), 100}, {*fake_tokenizer()->id_of("b"), 50}};
  EXPECT_EQ(generate_constrained("^a[abc]c$", "aac", params).text, "abc");
}

TEST_P(ConstrainedRequest, GivesLogprobsOfTheModelItself) {
  SamplingParams params = with_stop({});
  params.num_logprobs = 1;
  const GenerateResult result = generate_constrained("^b$", "a", params);
  ASSERT_THAT(result.logprobs, SizeIs(1));
  EXPECT_LT(result.logprobs[0].logprob, -9);  // the model wanted "a"
  EXPECT_EQ(result.top_logprobs[0][0].token_id, *fake_tokenizer()->id_of("a"));
}

TEST_P(ConstrainedRequest, FailsWhereTheVocabularyCannotWriteTheOutput) {
  const GenerateResult result = generate_constrained("^a7$", "a", with_stop({}));
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_THAT(result.error, HasSubstr("expected at least one token that may be chosen, got none. "
                                      "Check logit_bias, min_tokens and the constraint on "
                                      "the output."));
}

TEST_P(ConstrainedRequest, FailsWhereALimitIsPassed) {
  const GenerateResult result =
      generate_constrained("^((a{0,500}){0,500}){0,500}$", std::string(500, 'a'), with_stop({}));
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_EQ(result.error, constraint_limit_error("constraint"));
}

}  // namespace
}  // namespace halley
