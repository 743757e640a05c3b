// Tests of the engine's features for servers: deadlines, priorities, queue limits, prefix caching,
// prompt log probabilities, times, draining.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/engine/testing/engine_fixture.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::Le;
using testing::SizeIs;

void ignore_event(const TokenEvent&) {}

TokenCallback keep_last(std::promise<TokenEvent>& last) {
  return [&last](const TokenEvent& event) {
    if (event.finish_reason) last.set_value(event);
  };
}

/// An engine whose clock advances by 1 s in every step, and only then.
class Serving : public OnFakeModels {
 protected:
  TimePoint at(int64_t seconds) const { return TimePoint(std::chrono::seconds(seconds)); }

  /// The first step waits for start().
  void make_engine(const EngineConfig& config, FakeLogits logits_of = hashed_logits) {
    auto model = fake_model(std::move(logits_of));
    model->on_forward = [this](const ForwardBatch& batch) {
      may_start_.wait();
      ++seconds_;
      num_rows_.push_back(static_cast<int64_t>(batch.token_ids.size()));
      if (on_step_) on_step_();
    };
    engine_ =
        std::make_unique<Engine>(std::move(model), fake_tokenizer(), std::vector<int32_t>{kFakeEos},
                                 config, [this] { return at(seconds_); });
  }
  void start() { may_start_.set(); }

  void submit(GenerateRequest request, RequestId id, TokenCallback on_token = ignore_event) {
    request.sampling.ignore_eos = true;
    const SubmitResult result = engine_->submit(std::move(request), id, std::move(on_token));
    ASSERT_EQ(result.status, Submit::kQueued) << result.message;
  }
  TokenEvent run(GenerateRequest request, RequestId id = 1) {
    std::promise<TokenEvent> last;
    submit(std::move(request), id, keep_last(last));
    start();
    return last.get_future().get();
  }

  std::function<void()> on_step_;
  std::vector<int64_t> num_rows_;  // of each step
  std::atomic<int64_t> seconds_ = 100;
  Signal may_start_;
  std::unique_ptr<Engine> engine_;  // the last member: its thread uses the others
};

INSTANTIATE_TEST_SUITE_P(Models, Serving,
                         testing::Values(FakeDevice::kHost, FakeDevice::kDeviceAtWait),
                         name_of_fake_device);

TEST_P(Serving, EndsARunningRequestAtItsDeadline) {
  make_engine({});
  GenerateRequest request = greedy_request({1, 2}, 400);
  request.deadline = at(105);
  const TokenEvent last = run(request);
  EXPECT_EQ(last.finish_reason, FinishReason::kDeadline);
  EXPECT_FALSE(last.token_id);
  EXPECT_EQ(last.times->num_output_tokens, 5);
  EXPECT_STREQ(name_of(*last.finish_reason), "deadline");
}

TEST_P(Serving, EndsAWaitingRequestAtItsDeadline) {
  EngineConfig config;
  config.max_num_seqs = 1;
  make_engine(config);
  submit(greedy_request({1}, 500), 1);
  GenerateRequest request = greedy_request({1}, 30);
  request.deadline = at(103);
  std::promise<TokenEvent> ended;
  int64_t num_running = 0;  // when it ends
  submit(request, 2, [&](const TokenEvent& event) {
    num_running = engine_->stats().num_running;
    ended.set_value(event);
  });
  start();
  const TokenEvent last = ended.get_future().get();
  EXPECT_EQ(last.finish_reason, FinishReason::kDeadline);
  EXPECT_EQ(last.times->queue, 3);
  EXPECT_EQ(last.times->total, 3);
  EXPECT_FALSE(last.times->prefill || last.times->first_token || last.times->decode);
  EXPECT_EQ(num_running, 1);
}

TEST_P(Serving, NeverRunsARequestWhoseDeadlineHasPassed) {
  make_engine({});
  GenerateRequest request = greedy_request({1}, 30);
  request.deadline = at(100);
  EXPECT_EQ(run(request).finish_reason, FinishReason::kDeadline);
  EXPECT_EQ(engine_->stats().num_steps, 0);
}

TEST_P(Serving, MeasuresTheTimesOfARequest) {
  EngineConfig config;
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = 4;
  make_engine(config);
  submit(greedy_request({1, 2}, 3), 1);  // steps 1 to 3
  const TokenEvent last = run(greedy_request({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5), 2);
  EXPECT_EQ(last.finish_reason, FinishReason::kLength);
  // On a device it is planned while the other one's last step runs.
  EXPECT_EQ(last.times->queue, is_on_host() ? 3 : 2);
  EXPECT_EQ(last.times->prefill, is_on_host() ? 3 : 4);  // 4, 4 and 2 tokens
  EXPECT_EQ(last.times->first_token, 6);
  EXPECT_EQ(last.times->decode, 4);
  EXPECT_EQ(last.times->total, 10);
  EXPECT_EQ(last.times->num_prompt_tokens, 10);
  EXPECT_EQ(last.times->num_output_tokens, 5);
}

TEST_P(Serving, ServesTheBetterPriorityFirst) {
  EngineConfig config;
  config.max_num_seqs = 1;
  config.scheduling_policy = SchedulingPolicy::kPriority;
  make_engine(config);
  std::vector<RequestId> order;
  const auto note = [&](RequestId id) {
    return [&order, id](const TokenEvent& event) {
      if (event.finish_reason) order.push_back(id);
    };
  };
  for (const auto& [id, priority] :
       std::vector<std::pair<RequestId, int>>{{1, 3}, {2, 1}, {3, 2}}) {
    GenerateRequest request = greedy_request({1}, 4);
    request.priority = priority;
    submit(request, id, note(id));
  }
  start();
  engine_->wait_until_idle();
  EXPECT_THAT(order, ElementsAre(2, 3, 1));
}

TEST_P(Serving, BoundsWaitingTokensAndReportsItBeforeASubmit) {
  EngineConfig config;
  config.max_num_seqs = 1;
  config.max_num_queued_tokens = 10;
  make_engine(config);
  Signal is_running;
  on_step_ = [&] { is_running.set(); };
  submit(greedy_request({1}, 400), 1);
  start();
  is_running.wait();
  submit(greedy_request({1, 2, 3, 4, 5, 6}, 9), 2);
  EXPECT_EQ(engine_->stats().num_queued, 1);
  EXPECT_EQ(engine_->stats().num_queued_tokens, 6);
  EXPECT_EQ(engine_->would_admit(4).status, Submit::kQueued);
  EXPECT_EQ(engine_->would_admit(0).status, Submit::kQueued);
  EXPECT_EQ(engine_->would_admit(5).status, Submit::kQueueFull);
  EXPECT_EQ(engine_->would_admit(512).status, Submit::kTooLong);
  const SubmitResult full = engine_->submit(greedy_request({1, 2, 3, 4, 5}, 9), 3, ignore_event);
  EXPECT_EQ(full.status, Submit::kQueueFull);
  EXPECT_EQ(full.message, engine_->would_admit(5).message);
  submit(greedy_request({1, 2, 3, 4}, 9), 3);
  EXPECT_EQ(engine_->would_admit(0).status, Submit::kQueueFull);
}

TEST_P(Serving, RejectsSaltsAndPromptLogprobsOutOfRange) {
  make_engine({});
  start();
  GenerateRequest request = greedy_request({1});
  request.cache_salt = std::string(257, 'a');
  SubmitResult result = engine_->submit(request, 1, ignore_event);
  EXPECT_EQ(result.status, Submit::kInvalid);
  EXPECT_EQ(result.message, "cache_salt: expected at most 256 bytes, got 257");
  request.cache_salt.clear();
  request.sampling.num_prompt_logprobs = 21;
  result = engine_->submit(request, 1, ignore_event);
  EXPECT_EQ(result.status, Submit::kInvalid);
  EXPECT_EQ(result.message, "prompt_logprobs: expected -1 (none) to 20, got 21");
}

TEST_P(Serving, ComputesASharedBeginningOnce) {
  EngineConfig config;
  config.page_tokens = 4;
  make_engine(config);
  std::vector<int32_t> prompt_ids;
  for (int32_t i = 0; i < 22; ++i) prompt_ids.push_back(1 + i);
  std::vector<int64_t> num_cached;
  for (const char* salt : {"", "", "b", "b"}) {
    GenerateRequest request = greedy_request(prompt_ids, 1);
    request.cache_salt = salt;
    num_cached.push_back(run(request).times->num_cached_tokens);
  }
  EXPECT_THAT(num_cached, ElementsAre(0, 20, 0, 20));
  EXPECT_THAT(num_rows_, ElementsAre(22, 2, 22, 2));
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.num_prefix_queries, 88);
  EXPECT_EQ(stats.num_prefix_hits, 40);
  EXPECT_EQ(stats.num_prompt_tokens, 88);
  EXPECT_EQ(stats.num_cached_prompt_tokens, 40);
  EXPECT_EQ(stats.num_free_pages, stats.num_pages);
  EXPECT_EQ(stats.num_cached_pages, 10);
}

TEST_P(Serving, CarriesAConversationOnFromItsCachedOutput) {
  EngineConfig config;
  config.page_tokens = 4;
  make_engine(config);
  start();
  GenerateRequest first = greedy_request({1, 2, 3}, 14);
  first.sampling.ignore_eos = true;
  const GenerateResult result = generate_one(*engine_, first);
  GenerateRequest second = first;
  second.prompt_ids.insert(second.prompt_ids.end(), result.token_ids.begin(),
                           result.token_ids.end());
  second.prompt_ids.push_back(9);
  EXPECT_EQ(run(second).times->num_cached_tokens, 16);  // of 3 + 13 that were computed
}

// ---- Prompt log probabilities

std::vector<PromptLogprob> logprobs_alone(const std::vector<int32_t>& prompt_ids, int num_top) {
  std::vector<PromptLogprob> expected = {{.token_id = prompt_ids[0], .logprob = {}, .top = {}}};
  std::vector<float> logits(static_cast<size_t>(fake_vocab_size()));
  SamplerScratch scratch;
  for (size_t i = 1; i < prompt_ids.size(); ++i) {
    hashed_logits({prompt_ids.data(), i}, logits);
    expected.push_back({.token_id = prompt_ids[i],
                        .logprob = logprob_of(logits, prompt_ids[i]).logprob,
                        .top = top_logprobs(logits, num_top, scratch)});
  }
  return expected;
}

void expect_equal(const std::vector<PromptLogprob>& actual,
                  const std::vector<PromptLogprob>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE(str("prompt token ", i));
    EXPECT_EQ(actual[i].token_id, expected[i].token_id);
    EXPECT_EQ(actual[i].logprob, expected[i].logprob);
    ASSERT_EQ(actual[i].top.size(), expected[i].top.size());
    for (size_t j = 0; j < actual[i].top.size(); ++j) {
      EXPECT_EQ(actual[i].top[j].token_id, expected[i].top[j].token_id);
      EXPECT_EQ(actual[i].top[j].logprob, expected[i].top[j].logprob);
    }
  }
}

TEST_P(Serving, GivesLogprobsOfThePromptOnTheFirstEventHoweverItIsCut) {
  std::vector<int32_t> prompt_ids;
  for (int32_t i = 0; i < 23; ++i) prompt_ids.push_back(1 + i * 7 % 40);
  for (const int64_t num_rows : {1, 4, 22, 23, 100}) {
    EngineConfig config;
    config.page_tokens = 4;
    config.max_num_seqs = 1;
    config.max_num_batched_tokens = num_rows;
    make_engine(config);
    start();
    generate_one(*engine_, greedy_request(prompt_ids, 1));  // its cached prefix is not used
    for (const int num_top : {0, 3, 20}) {
      GenerateRequest request = greedy_request(prompt_ids, 3);
      request.sampling.num_prompt_logprobs = num_top;
      int num_events = 0;
      const auto results = generate_all(*engine_, {request}, [&](size_t, const TokenEvent& event) {
        EXPECT_EQ(event.prompt_logprobs.empty(), num_events++ > 0);
      });
      expect_equal(results[0].prompt_logprobs, logprobs_alone(prompt_ids, num_top));
    }
  }
}

TEST_P(Serving, GivesLogprobsOfThePromptAfterAPreemption) {
  EngineConfig config;
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = 4;
  config.scheduling_policy = SchedulingPolicy::kPriority;
  make_engine(config);
  const std::vector<int32_t> prompt_ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  on_step_ = [&, num_steps = 0]() mutable {
    if (++num_steps == 2) submit(greedy_request({1}, 3), 2);
  };
  GenerateRequest request = greedy_request(prompt_ids, 3);
  request.sampling.num_prompt_logprobs = 2;
  request.priority = 1;
  std::vector<PromptLogprob> logprobs;
  submit(request, 1, [&](const TokenEvent& event) {
    if (!event.prompt_logprobs.empty()) logprobs = event.prompt_logprobs;
    if (event.finish_reason) {
      EXPECT_EQ(event.times->num_preemptions, 1);
    }
  });
  start();
  engine_->wait_until_idle();
  expect_equal(logprobs, logprobs_alone(prompt_ids, 2));
}

TEST_P(Serving, EndsARequestWhosePromptHasLogitsThatAreNotFinite) {
  make_engine({}, [](std::span<const int32_t> tokens, std::span<float> logits) {
    hashed_logits(tokens, logits);
    if (tokens.size() == 3 && tokens[0] == 1) logits[5] = std::numeric_limits<float>::quiet_NaN();
  });
  GenerateRequest request = greedy_request({1, 2, 3, 4, 5}, 4);
  request.sampling.num_prompt_logprobs = 0;
  std::promise<TokenEvent> other;
  submit(greedy_request({2, 3, 4, 5}, 4), 2, keep_last(other));
  const TokenEvent last = run(request);
  EXPECT_EQ(last.finish_reason, FinishReason::kError);
  EXPECT_EQ(last.error,
            "prompt logits: expected finite numbers, got NaN or infinity. The weights may be "
            "damaged, or the model overflows its number format.");
  EXPECT_EQ(other.get_future().get().finish_reason, FinishReason::kLength);
}

// ---- Draining

TEST_P(Serving, DrainsUntilAllHaveEnded) {
  EngineConfig config;
  config.max_num_seqs = 1;
  make_engine(config);
  std::promise<TokenEvent> running, waiting;
  submit(greedy_request({1}, 5), 1, keep_last(running));
  submit(greedy_request({2}, 5), 2, keep_last(waiting));
  engine_->drain(at(1000));
  const SubmitResult rejected = engine_->submit(greedy_request({1}), 3, ignore_event);
  EXPECT_EQ(rejected.status, Submit::kStopped);
  EXPECT_EQ(rejected.message, "engine: it is draining and takes no requests any more");
  EXPECT_EQ(engine_->would_admit(1).status, Submit::kStopped);
  start();
  engine_->wait_until_idle();
  EXPECT_EQ(running.get_future().get().finish_reason, FinishReason::kLength);
  EXPECT_EQ(waiting.get_future().get().finish_reason, FinishReason::kLength);
}

TEST_P(Serving, CancelsWhatHasNotEndedAtTheLimitOfADrain) {
  EngineConfig config;
  config.max_num_seqs = 1;
  make_engine(config);
  std::promise<TokenEvent> running, waiting;
  submit(greedy_request({1}, 50), 1, keep_last(running));
  submit(greedy_request({2}, 5), 2, keep_last(waiting));
  engine_->drain(at(103));
  start();
  engine_->wait_until_idle();
  const TokenEvent last = running.get_future().get();
  EXPECT_EQ(last.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(last.times->num_output_tokens, 3);
  EXPECT_EQ(waiting.get_future().get().finish_reason, FinishReason::kCancelled);
}

// A step takes a second for each of its rows.
TEST_P(Serving, LimitsThePrefillRowsOfStepsWithDecodesToTheItlTarget) {
  EngineConfig config;
  config.itl_target = {.kind = ItlTarget::Kind::kSeconds, .seconds = 20};
  make_engine(config);
  on_step_ = [this] { seconds_ += num_rows_.back() - 1; };
  submit(greedy_request({1}, 400), 1);
  const TokenEvent last = run(greedy_request(std::vector<int32_t>(400, 2), 1), 2);
  EXPECT_EQ(last.finish_reason, FinishReason::kLength);
  EXPECT_EQ(engine_->stats().itl_target_seconds, 20);
  EXPECT_THAT(engine_->stats().num_prefill_rows_max, AllOf(Ge(15), Le(19)));
  engine_->wait_until_idle();
  num_rows_.erase(num_rows_.begin());  // without decodes
  EXPECT_THAT(num_rows_, Each(Le(20)));
  EXPECT_GE(std::count_if(num_rows_.begin(), num_rows_.end(), [](int64_t n) { return n > 15; }),
            10);
}

TEST_P(Serving, IsIdleBeforeTheFirstRequestAndAfterAFailure) {
  make_engine({});
  engine_->wait_until_idle();
  on_step_ = [] { throw DeviceError("broken"); };
  EXPECT_EQ(run(greedy_request({1})).finish_reason, FinishReason::kError);
  engine_->wait_until_idle();
}

}  // namespace
}  // namespace halley
