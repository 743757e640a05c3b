// Tests of the whole engine: rejections, threads, cancels, failures, independence from the batch.
#include "halley/engine/engine.h"

#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/testing/engine_fixture.h"

namespace halley {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

void ignore_event(const TokenEvent&) {}

// Waits for the finish reason of the last event.
TokenCallback keep_reason(std::promise<FinishReason>& reason) {
  return [&reason](const TokenEvent& event) {
    if (event.finish_reason) reason.set_value(*event.finish_reason);
  };
}

class EngineOn : public OnFakeModels {};
INSTANTIATE_TEST_SUITE_P(Models, EngineOn, fake_devices(), name_of_fake_device);

struct BadRequest {
  const char* message;
  void (*spoil)(GenerateRequest&);
};

TEST_P(EngineOn, SaysWhyARequestIsInvalid) {
  const BadRequest cases[] = {
      {"prompt_ids: expected at least 1 token, got 0",
       [](GenerateRequest& r) { r.prompt_ids.clear(); }},
      {"prompt_ids: expected token ids of 0 to 43, got 44",
       [](GenerateRequest& r) { r.prompt_ids = {44}; }},
      {"prompt_ids: expected token ids of 0 to 43, got -1",
       [](GenerateRequest& r) { r.prompt_ids = {-1}; }},
      {"temperature: expected 0 to 2, got 3",
       [](GenerateRequest& r) { r.sampling.temperature = 3; }},
  };
  const auto engine = fake_engine(fake_model());
  for (const BadRequest& bad : cases) {
    GenerateRequest request = greedy_request({1});
    bad.spoil(request);
    const SubmitResult result = engine->submit(request, 1, ignore_event);
    EXPECT_EQ(result.status, Submit::kInvalid);
    EXPECT_EQ(result.message, bad.message);
  }
  EXPECT_EQ(engine->submit(greedy_request({1}), 1, nullptr).message,
            "on_token: expected a callback, got none");
}

TEST_P(EngineOn, RejectsStopStringsWithoutATokenizer) {
  Engine engine(fake_model(), nullptr, {}, {});
  GenerateRequest request = greedy_request({1});
  request.sampling.stop = {"a"};
  const SubmitResult result = engine.submit(request, 1, ignore_event);
  EXPECT_EQ(result.status, Submit::kInvalid);
  EXPECT_EQ(result.message,
            "stop: expected no stop strings, since the engine has no tokenizer. Use "
            "stop_token_ids.");
}

TEST_P(EngineOn, RejectsPromptsThatFillTheModel) {
  EngineConfig config;
  config.max_model_len = 8;
  const auto engine = fake_engine(fake_model(), config);
  const SubmitResult result =
      engine->submit(greedy_request(std::vector<int32_t>(8, 1)), 1, ignore_event);
  EXPECT_EQ(result.status, Submit::kTooLong);
  EXPECT_EQ(result.message,
            "prompt_ids: expected fewer than max_model_len=8 tokens, got 8. Shorten the prompt.");
}

TEST_P(EngineOn, RejectsIdsInUseAndAFullQueue) {
  Signal is_in_forward, may_go_on;
  auto model = fake_model();
  model->on_forward = [&](const ForwardBatch&) {
    is_in_forward.set();
    may_go_on.wait();
  };
  EngineConfig config;
  config.max_num_queued = 2;
  const auto engine = fake_engine(std::move(model), config);
  ASSERT_EQ(engine->submit(greedy_request({1}), 1, ignore_event).status, Submit::kQueued);
  is_in_forward.wait();  // now it runs, and the queue is empty
  ASSERT_EQ(engine->submit(greedy_request({1}), 2, ignore_event).status, Submit::kQueued);
  ASSERT_EQ(engine->submit(greedy_request({1}), 3, ignore_event).status, Submit::kQueued);
  const SubmitResult in_use = engine->submit(greedy_request({1}), 2, ignore_event);
  EXPECT_EQ(in_use.status, Submit::kInvalid);
  EXPECT_EQ(in_use.message, "id: expected one that is not in use, got 2");
  const SubmitResult full = engine->submit(greedy_request({1}), 4, ignore_event);
  EXPECT_EQ(full.status, Submit::kQueueFull);
  EXPECT_EQ(full.message,
            "queue: expected fewer than max_num_queued=2 waiting requests, got 2. Try again "
            "later.");
  EXPECT_EQ(engine->stats().num_waiting, 2);
  EXPECT_EQ(engine->stats().num_running, 1);
  may_go_on.set();
}

TEST_P(EngineOn, RejectsEosIdsOutsideTheVocabulary) {
  EXPECT_THAT([] { Engine(fake_model(), nullptr, {44}, {}); },
              testing::ThrowsMessage<InputError>(
                  HasSubstr("eos_token_ids: expected token ids of 0 to 43, got 44")));
}

TEST_P(EngineOn, CountsWhatItDoes) {
  EngineConfig config;
  config.max_num_seqs = 3;
  config.max_num_batched_tokens = 4;
  config.max_model_len = 32;
  const auto engine = fake_engine(fake_model(), config);
  std::vector<GenerateRequest> requests(2, greedy_request({1, 2, 3, 4, 5, 6}, 4));
  for (GenerateRequest& request : requests) request.sampling.ignore_eos = true;
  static_cast<void>(generate_all(*engine, requests));
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_prompt_tokens, 12);
  EXPECT_EQ(stats.num_output_tokens, 8);
  EXPECT_EQ(stats.num_running + stats.num_waiting, 0);
  EXPECT_EQ(stats.num_pages, 6);  // 3 sequences of 32 tokens, 16 a page
  EXPECT_EQ(stats.num_free_pages, 6);
  EXPECT_EQ(stats.num_preemptions, 0);
  EXPECT_GE(stats.num_steps, 6);
  EXPECT_EQ(stats.step_sizes.num_tokens, 12 + 6);  // the last token of each is not computed
  EXPECT_EQ(std::accumulate(stats.step_sizes.counts.begin(), stats.step_sizes.counts.end(), 0),
            stats.num_steps);
}

TEST_P(EngineOn, CancelsWhatDecodesWaitsOrIsUnknown) {
  EngineConfig config;
  config.max_num_seqs = 1;
  const auto engine = fake_engine(fake_model(), config);
  std::promise<FinishReason> first_reason, second_reason;
  Signal is_submitted;
  int num_tokens = 0;
  GenerateRequest request = greedy_request({1}, 500);
  request.sampling.ignore_eos = true;
  const auto on_token = [&](const TokenEvent& event) {
    is_submitted.wait();
    if (++num_tokens == 3) {
      engine->cancel(2);   // waits
      engine->cancel(1);   // this one
      engine->cancel(77);  // an unknown id
    }
    if (event.finish_reason) {
      EXPECT_FALSE(event.token_id);
      first_reason.set_value(*event.finish_reason);
    }
  };
  ASSERT_EQ(engine->submit(request, 1, on_token).status, Submit::kQueued);
  ASSERT_EQ(engine->submit(request, 2, keep_reason(second_reason)).status, Submit::kQueued);
  is_submitted.set();
  EXPECT_EQ(first_reason.get_future().get(), FinishReason::kCancelled);
  EXPECT_EQ(second_reason.get_future().get(), FinishReason::kCancelled);
  EXPECT_EQ(num_tokens, 4);  // three tokens and the end
  EXPECT_EQ(engine->stats().num_free_pages, engine->stats().num_pages);
}

TEST_P(EngineOn, CancelsWhatPrefills) {
  auto model = fake_model();
  Engine* engine_of_model = nullptr;
  int num_forwards = 0;
  Signal is_ready;
  model->on_forward = [&](const ForwardBatch&) {
    is_ready.wait();
    if (++num_forwards == 2) engine_of_model->cancel(1);
  };
  EngineConfig config;
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = 4;
  const auto engine = fake_engine(std::move(model), config);
  engine_of_model = engine.get();
  std::promise<FinishReason> reason;
  ASSERT_EQ(
      engine->submit(greedy_request(std::vector<int32_t>(100, 1)), 1, keep_reason(reason)).status,
      Submit::kQueued);
  is_ready.set();
  EXPECT_EQ(reason.get_future().get(), FinishReason::kCancelled);
  EXPECT_EQ(engine->stats().num_steps, GetParam() == FakeDevice::kDeviceAtWait ? 3 : 2);
  EXPECT_EQ(engine->stats().num_output_tokens, 0);
}

TEST_P(EngineOn, TakesTheSameIdAgainFromInsideTheLastCallback) {
  const auto engine = fake_engine(fake_model());
  std::promise<FinishReason> reason;
  const auto on_first = [&](const TokenEvent& event) {
    if (!event.finish_reason) return;
    EXPECT_EQ(engine->submit(greedy_request({2}, 2), 1, keep_reason(reason)).status,
              Submit::kQueued);
  };
  ASSERT_EQ(engine->submit(greedy_request({1}, 2), 1, on_first).status, Submit::kQueued);
  EXPECT_NE(reason.get_future().get(), FinishReason::kError);
}

TEST_P(EngineOn, CancelsEverythingWhenItEnds) {
  constexpr int64_t kForEver = 100'000;  // the fake reads all tokens for each: minutes
  std::atomic<int> num_cancelled = 0;
  Signal has_token;
  SubmitResult late;
  {
    EngineConfig config;
    config.max_num_seqs = 2;
    const auto engine = fake_engine(fake_model(hashed_logits, {.max_positions = kForEver}), config);
    const auto on_token = [&](const TokenEvent& event) {
      has_token.set();
      if (!event.finish_reason) return;
      if (*event.finish_reason == FinishReason::kCancelled) ++num_cancelled;
      late = engine->submit(greedy_request({1}), 100, ignore_event);
    };
    GenerateRequest request = greedy_request({1}, kForEver);
    request.sampling.ignore_eos = true;
    for (RequestId id = 0; id < 5; ++id) {
      ASSERT_EQ(engine->submit(request, id, on_token).status, Submit::kQueued);
    }
    has_token.wait();
  }
  EXPECT_EQ(num_cancelled, 5);
  EXPECT_EQ(late.status, Submit::kStopped);
  EXPECT_EQ(late.message, "engine: it is ending");
}

TEST_P(EngineOn, ReportsTheModelsFailureToAllAndStops) {
  auto model = fake_model();
  Signal is_submitted;
  int num_forwards = 0;
  model->on_forward = [&](const ForwardBatch&) {
    is_submitted.wait();
    if (++num_forwards == 4) throw DeviceError("gpu 0: expected success, got error 700");
  };
  EngineConfig config;
  config.max_num_seqs = 2;  // so that one waits
  const auto engine = fake_engine(std::move(model), config);
  GenerateRequest request = greedy_request({1}, 100);
  request.sampling.ignore_eos = true;
  std::promise<TokenEvent> last_events[3];
  for (RequestId id = 0; id < 3; ++id) {
    const auto on_token = [&, id](const TokenEvent& event) {
      if (event.finish_reason) last_events[id].set_value(event);
    };
    ASSERT_EQ(engine->submit(request, id, on_token).status, Submit::kQueued);
  }
  is_submitted.set();
  for (std::promise<TokenEvent>& last_event : last_events) {
    const TokenEvent event = last_event.get_future().get();
    EXPECT_EQ(event.finish_reason, FinishReason::kError);
    EXPECT_EQ(event.error, "gpu 0: expected success, got error 700");
  }
  const SubmitResult late = engine->submit(request, 1, ignore_event);
  EXPECT_EQ(late.status, Submit::kStopped);
  EXPECT_EQ(late.message, "engine: stopped after an error: gpu 0: expected success, got error 700");
  EXPECT_EQ(engine->stats().num_running + engine->stats().num_waiting, 0);
}

// ---- Independence from the batch

GenerateRequest random_request(std::mt19937_64& random) {
  const auto pick = [&](uint64_t count) { return static_cast<int64_t>(random() % count); };
  GenerateRequest request;
  for (int64_t i = 0; i <= pick(20); ++i) {
    request.prompt_ids.push_back(static_cast<int32_t>(1 + pick(43)));
  }
  SamplingParams& params = request.sampling;
  params.max_tokens = 1 + pick(25);
  params.temperature = 0.5 * static_cast<double>(pick(4));
  params.top_k = pick(2) * 10;
  params.top_p = pick(2) == 0 ? 1.0 : 0.9;
  params.min_p = pick(2) == 0 ? 0.0 : 0.02;
  params.repetition_penalty = pick(2) == 0 ? 1.0 : 1.3;
  params.presence_penalty = pick(2) == 0 ? 0.0 : 0.5;
  params.frequency_penalty = pick(2) == 0 ? 0.0 : 0.5;
  params.min_tokens = std::min(pick(5), params.max_tokens);
  params.seed = random();
  return request;
}

TEST_P(EngineOn, GivesEveryRequestTheTokensThatItGetsAlone) {
  int64_t num_preemptions = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    std::mt19937_64 random(seed);
    EngineConfig config;
    config.page_tokens = 1 + static_cast<int64_t>(random() % 5);
    config.max_model_len = 50;
    config.max_num_seqs = 1 + static_cast<int64_t>(random() % 8);
    config.max_num_batched_tokens = config.max_num_seqs + static_cast<int64_t>(random() % 16);
    // 16 bytes a token: room for one sequence and a little.
    config.kv_bytes = 16 * (55 + static_cast<int64_t>(random() % 40));
    std::vector<GenerateRequest> requests;
    for (int i = 0; i < 20; ++i) requests.push_back(random_request(random));
    const auto engine = fake_engine(fake_model(), config);
    const std::vector<GenerateResult> results = generate_all(*engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(results[i].token_ids, tokens_alone(requests[i], fake_vocab_size())) << i;
    }
    EXPECT_EQ(engine->stats().num_free_pages, engine->stats().num_pages);
    num_preemptions += engine->stats().num_preemptions;
  }
  EXPECT_GT(num_preemptions, 20);
}

TEST_P(EngineOn, ServesManyThreadsThatSubmitAndCancel) {
  constexpr uint64_t kNumThreads = 4, kNumRequests = 50;
  EngineConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 16;
  config.max_model_len = 60;
  config.max_num_queued = 20;
  config.kv_bytes = 16 * 200;
  std::atomic<uint64_t> num_queued = 0, num_ended = 0, num_wrong = 0;
  {
    const auto engine = fake_engine(fake_model(), config);
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < kNumThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937_64 random(thread);
        for (uint64_t i = 0; i < kNumRequests; ++i) {
          const RequestId id = thread * kNumRequests + i;
          const auto on_token = [&, id, is_ended = false](const TokenEvent& event) mutable {
            if (is_ended) ++num_wrong;
            if (event.token_id && *event.token_id % 9 == 0) engine->cancel(id);
            is_ended = event.finish_reason.has_value();
            if (is_ended) ++num_ended;
          };
          const GenerateRequest request = random_request(random);
          Submit status = Submit::kQueueFull;
          while (status == Submit::kQueueFull) {
            status = engine->submit(request, id, on_token).status;
            std::this_thread::yield();
          }
          status == Submit::kQueued ? ++num_queued : ++num_wrong;
          if (random() % 4 == 0) engine->cancel(id - random() % 3);
          static_cast<void>(engine->stats());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(num_wrong, 0u);
  EXPECT_EQ(num_ended, num_queued);
  EXPECT_EQ(num_queued, kNumThreads * kNumRequests);
}

}  // namespace
}  // namespace halley
