// Tests of steps in flight, on the fake device: launches before tokens are known, and their
// results.
#include "halley/engine/step_pipeline.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/testing/engine_fixture.h"
#include "halley/engine/testing/fake_mask_executor.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// ---- StepBatch

TEST(StepBatch, NamesTheSlotWhereATokenIsNotKnown) {
  StepBatch batch;
  const std::vector<int32_t> tokens = {7, 8, 9};
  batch.add({.num_past = 3, .num_rows = 1, .is_complete = true}, {.tokens = tokens, .slot = 4});
  batch.add({.num_past = 2, .num_rows = 1, .is_complete = true}, {.tokens = tokens, .slot = 0});
  const RunnerStep step = batch.step();
  EXPECT_THAT(step.batch.token_ids, ElementsAre(slot_token(4), 9));
  EXPECT_EQ(slot_of_token(step.batch.token_ids[0]), 4);
  ASSERT_EQ(step.choices.size(), 2u);
  EXPECT_EQ(step.choices[0].row, 0);
  EXPECT_EQ(step.choices[0].slot, 4);
  EXPECT_EQ(step.choices[1].row, 1);
  EXPECT_THAT(step.batch.logit_rows, IsEmpty());
}

TEST(StepBatch, AsksForLogitsOfScoredRowsAndForChoices) {
  StepBatch batch;
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  batch.add({.num_past = 0, .num_rows = 2}, {.tokens = tokens, .scored_rows = {0, 2}});
  batch.add({.num_past = 1, .num_rows = 3, .is_complete = true},
            {.tokens = tokens, .scored_rows = {1, 2}, .slot = 3, .is_choice_deferred = true});
  batch.add({.num_past = 0, .num_rows = 4, .is_complete = true},
            {.tokens = tokens, .scored_rows = {2, 3}, .slot = 1});
  const RunnerStep step = batch.step();
  EXPECT_THAT(step.batch.token_ids, ElementsAre(1, 2, 2, 3, 4, 1, 2, 3, 4));
  EXPECT_THAT(step.batch.logit_rows, ElementsAre(0, 1, 3, 7));
  ASSERT_EQ(step.choices.size(), 2u);
  EXPECT_EQ(step.choices[0].row, 4);
  EXPECT_TRUE(step.choices[0].is_deferred);
  EXPECT_EQ(step.choices[1].row, 8);
  EXPECT_FALSE(step.choices[1].is_deferred);
}

TEST(StepBatchDeathTest, NeedsASlotForATokenThatIsNotKnown) {
  StepBatch batch;
  const std::vector<int32_t> tokens = {1};
  EXPECT_DEATH(batch.add({.num_past = 1, .num_rows = 1}, {.tokens = tokens}), "input.slot");
}

// ---- Engines whose model samples

class InFlight : public OnFakeModels {};
INSTANTIATE_TEST_SUITE_P(Models, InFlight,
                         testing::Values(FakeDevice::kDeviceAtWait, FakeDevice::kDeviceAtLaunch),
                         name_of_fake_device);

GenerateRequest unending_request(std::vector<int32_t> prompt_ids, int64_t max_tokens) {
  GenerateRequest request = greedy_request(std::move(prompt_ids), max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

// Masks that are made only when the engine has nothing else to do.
std::unique_ptr<Engine> engine_with_late_masks(std::unique_ptr<CausalLm> model,
                                               const EngineConfig& config = {}) {
  return std::make_unique<Engine>(
      std::move(model), fake_tokenizer(), std::vector<int32_t>{kFakeEos}, config, EngineClock{},
      std::make_unique<FakeMaskExecutor>([](size_t) { return size_t{0}; }));
}

TEST_P(InFlight, HasTheNextStepBeforeItWaits) {
  auto model = fake_model();
  Engine* engine_of_model = nullptr;
  std::vector<int64_t> num_ahead;  // steps that were launched, beyond those that had run
  model->on_forward = [&](const ForwardBatch&) {
    num_ahead.push_back(engine_of_model->stats().num_steps -
                        static_cast<int64_t>(num_ahead.size()));
  };
  const auto engine = fake_engine(std::move(model));
  engine_of_model = engine.get();
  generate_one(*engine, unending_request({1, 2}, 5));
  if (GetParam() == FakeDevice::kDeviceAtWait) {
    EXPECT_THAT(num_ahead, ElementsAre(2, 2, 2, 2, 1));  // nothing follows the last
  } else {
    EXPECT_THAT(num_ahead, ElementsAre(1, 1, 1, 1, 1));
  }
}

TEST_P(InFlight, PassesNoTokenThroughTheHost) {
  auto model = fake_model();
  int64_t num_logit_rows = 0;
  static_cast<FakeDeviceLm&>(*model).step_runner()->on_launch = [&](const RunnerStep& step) {
    num_logit_rows += static_cast<int64_t>(step.batch.logit_rows.size());
  };
  const auto engine = fake_engine(std::move(model));
  generate_one(*engine, unending_request({1, 2}, 5));
  EXPECT_EQ(num_logit_rows, 0);
}

TEST_P(InFlight, DropsResultsAfterTheEndOfARequest) {
  const auto engine = fake_engine(fake_model(scripted_logits({5, 6, 7}, 1)));
  const GenerateResult result = generate_one(*engine, greedy_request({1}));
  EXPECT_THAT(result.token_ids, ElementsAre(5, 6, 7, kFakeEos));
  engine->wait_until_idle();
  EXPECT_EQ(engine->stats().num_steps, 5);  // the last one for nothing
  EXPECT_EQ(engine->stats().num_output_tokens, 4);
  EXPECT_EQ(result.times.num_output_tokens, 4);
}

TEST_P(InFlight, GivesNothingOfAnEndedRequestToTheNextOneWithItsIdAndItsSlot) {
  EngineConfig config;
  config.max_num_seqs = 1;
  // The first prefers EOS after its third token, and then, in the step that is dropped, 9.
  const auto logits_of = [](std::span<const int32_t> tokens, std::span<float> logits) {
    hashed_logits(tokens, logits);
    if (tokens[0] != 1) return;
    logits[tokens.size() == 3 ? kFakeEos : 9] = 50;
  };
  const auto engine = fake_engine(fake_model(logits_of), config);
  const GenerateRequest second = unending_request({2, 3}, 6);
  std::vector<int32_t> tokens;
  const auto on_second = [&](const TokenEvent& event) {
    if (event.token_id) tokens.push_back(*event.token_id);
  };
  const auto on_first = [&](const TokenEvent& event) {
    if (!event.finish_reason) return;
    EXPECT_EQ(event.finish_reason, FinishReason::kStop);
    EXPECT_EQ(engine->submit(second, 7, on_second).status, Submit::kQueued);
  };
  ASSERT_EQ(engine->submit(greedy_request({1}), 7, on_first).status, Submit::kQueued);
  engine->wait_until_idle();
  EXPECT_EQ(tokens, generate_one(*fake_engine(fake_model(logits_of)), second).token_ids);
}

TEST_P(InFlight, LeavesNoStepInFlightWhenItIsIdle) {
  auto model = fake_model(scripted_logits({5}, 1));
  int64_t num_forwards = 0;
  model->on_forward = [&](const ForwardBatch&) { ++num_forwards; };
  const auto engine = fake_engine(std::move(model));
  for (int round = 1; round <= 3; ++round) {
    generate_one(*engine, greedy_request({1}));
    engine->wait_until_idle();
    EXPECT_EQ(num_forwards, engine->stats().num_steps);
    EXPECT_EQ(num_forwards, 3 * round);  // of 5, of EOS, and one that is dropped
  }
}

TEST_P(InFlight, RunsAnotherRequestInsteadOfOneInItsLastStep) {
  EngineConfig config;
  config.max_num_seqs = 1;
  auto model = fake_model();
  std::vector<int32_t> first_ids;
  model->on_forward = [&](const ForwardBatch& batch) {
    EXPECT_EQ(batch.sequences.size(), 1u);
    first_ids.push_back(batch.token_ids[0]);
  };
  const auto engine = fake_engine(std::move(model), config);
  std::vector<GenerateRequest> requests;
  for (int32_t id = 20; id < 24; ++id) requests.push_back(unending_request({id}, 1));
  const std::vector<GenerateResult> results = generate_all(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(results[i].token_ids,
              generate_one(*fake_engine(fake_model()), requests[i]).token_ids);
  }
  EXPECT_THAT(first_ids, ElementsAre(20, 21, 22, 23));
}

TEST_P(InFlight, PassesNoTokenOfAConstrainedRequestThroughTheHost) {
  auto model = fake_model(scripted_logits(fake_tokenizer()->encode("abcabc", false), 1));
  std::vector<int32_t> inputs;
  int64_t num_logit_rows = 0;
  static_cast<FakeDeviceLm&>(*model).step_runner()->on_launch = [&](const RunnerStep& step) {
    num_logit_rows += static_cast<int64_t>(step.batch.logit_rows.size());
    inputs.push_back(step.batch.token_ids.back());
    EXPECT_TRUE(step.choices[0].is_deferred);
  };
  const auto engine = fake_engine(std::move(model));
  GenerateRequest request = greedy_request({1});
  request.constraint = fake_constraint("^[ab]c?[abc]b$");
  EXPECT_EQ(generate_one(*engine, request).text, "abb");
  EXPECT_EQ(num_logit_rows, 0);
  // The last one is launched before it is known that the output is complete.
  EXPECT_THAT(inputs, ElementsAre(1, slot_token(0), slot_token(0), slot_token(0)));
}

class Masks : public OnFakeModels {};
INSTANTIATE_TEST_SUITE_P(Models, Masks, fake_devices(), name_of_fake_device);

TEST_P(Masks, OfOneRequestDoNotKeepAnotherOneWaiting) {
  auto model = fake_model();
  const auto engine = engine_with_late_masks(std::move(model));
  GenerateRequest constrained = greedy_request({1}, 8);
  constrained.constraint = fake_constraint("^(?:a|b|ab|ba){8,30}$");
  constrained.sampling.ignore_eos = true;
  std::vector<std::string> ended;
  bool has_constrained = false;
  const auto on_other = [&](const TokenEvent& event) {
    if (event.finish_reason) ended.push_back("other");
    if (std::exchange(has_constrained, true)) return;
    const auto on_constrained = [&](const TokenEvent& last) {
      if (last.finish_reason) ended.push_back("constrained");
    };
    EXPECT_EQ(engine->submit(constrained, 2, on_constrained).status, Submit::kQueued);
  };
  ASSERT_EQ(engine->submit(unending_request({2}, 8), 1, on_other).status, Submit::kQueued);
  engine->wait_until_idle();
  EXPECT_THAT(ended, ElementsAre("other", "constrained"));
}

TEST_P(Masks, MayBeInTheMakingWhenTheirRequestIsCancelledOrTooLate) {
  Engine* engine_of_model = nullptr;
  int num_forwards = 0;
  auto model = fake_model();
  model->on_forward = [&](const ForwardBatch&) {
    if (++num_forwards == 1) engine_of_model->cancel(1);
  };
  const auto engine = engine_with_late_masks(std::move(model));
  engine_of_model = engine.get();
  std::vector<FinishReason> reasons;
  GenerateRequest request = greedy_request({1}, 8);
  request.constraint = fake_constraint("^(?:a|b|ab|ba){8,30}$");
  const auto keep_reason = [&](const TokenEvent& event) {
    EXPECT_FALSE(event.token_id.has_value());
    reasons.push_back(*event.finish_reason);
  };
  ASSERT_EQ(engine->submit(request, 1, keep_reason).status, Submit::kQueued);
  engine->wait_until_idle();
  request.deadline = TimePoint::min();
  ASSERT_EQ(engine->submit(request, 2, keep_reason).status, Submit::kQueued);
  engine->wait_until_idle();
  EXPECT_THAT(reasons, ElementsAre(FinishReason::kCancelled, FinishReason::kDeadline));
}

TEST_P(Masks, MayBeInTheMakingWhenTheEngineEnds) {
  Signal has_token;
  const auto engine = fake_engine(fake_model(hashed_logits, {.max_positions = 5000}));
  for (RequestId id = 0; id < 20; ++id) {
    GenerateRequest request = greedy_request({1 + static_cast<int32_t>(id)}, 4000);
    request.constraint = fake_constraint(str("^(?:[a-f]|[b-g]|ab|ba|aab){1,", 400 + id, "}$"));
    ASSERT_EQ(engine->submit(request, id, [&](const TokenEvent&) { has_token.set(); }).status,
              Submit::kQueued);
  }
  has_token.wait();
}

TEST_P(InFlight, GivesWhatTheHostGivesToRequestsOfEveryKind) {
  std::vector<GenerateRequest> requests;
  for (int32_t i = 0; i < 24; ++i) {
    GenerateRequest request = greedy_request({1 + i, 2, 3, 4 + i % 3}, 5 + i);
    SamplingParams& params = request.sampling;
    params.seed = static_cast<uint64_t>(i);
    params.temperature = i % 4 * 0.5;
    params.num_logprobs = i % 5 - 1;
    if (i % 3 == 0) params.repetition_penalty = 1.4;
    if (i % 4 == 1) params.frequency_penalty = 1.5;
    if (i % 5 == 2) params.logit_bias = {{5, 4}, {11, -3}};
    if (i % 6 == 3) params.stop = {"e", "ab"};
    if (i % 6 == 4) params.min_tokens = 4;
    if (i % 7 == 5) request.constraint = fake_constraint("^[a-f ]*(?:stop|end)$");
    if (i % 7 == 6) params.num_prompt_logprobs = 2;
    requests.push_back(request);
  }
  EngineConfig config;
  config.page_tokens = 2;
  config.max_model_len = 40;
  config.max_num_seqs = 6;
  config.max_num_batched_tokens = 9;
  config.kv_bytes = 16 * 50;
  const auto engine = engine_with_late_masks(fake_model(), config);
  const auto on_host = fake_engine(halley::fake_model(), config);
  const std::vector<GenerateResult> results = generate_all(*engine, requests);
  const std::vector<GenerateResult> expected = generate_all(*on_host, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(results[i].token_ids, expected[i].token_ids);
    EXPECT_EQ(results[i].text, expected[i].text);
    EXPECT_EQ(results[i].finish_reason, expected[i].finish_reason);
    EXPECT_EQ(results[i].stop_reason, expected[i].stop_reason);
    EXPECT_EQ(results[i].prompt_logprobs.size(), expected[i].prompt_logprobs.size());
    ASSERT_EQ(results[i].logprobs.size(), expected[i].logprobs.size());
    for (size_t j = 0; j < results[i].logprobs.size(); ++j) {
      EXPECT_EQ(results[i].logprobs[j].logprob, expected[i].logprobs[j].logprob);
      EXPECT_EQ(results[i].top_logprobs[j].size(), expected[i].top_logprobs[j].size());
    }
  }
  EXPECT_GT(engine->stats().num_preemptions, 0);
}

TEST_P(InFlight, EndsWithStepsInFlight) {
  Signal has_token;
  const auto engine = fake_engine(fake_model(hashed_logits, {.max_positions = 5000}));
  ASSERT_EQ(
      engine->submit(unending_request({1}, 4000), 1, [&](const TokenEvent&) { has_token.set(); })
          .status,
      Submit::kQueued);
  has_token.wait();
}

}  // namespace
}  // namespace halley
