// Tests of requests that generate nothing: what they give, alone and among others.
#include "halley/engine/pooling.h"

#include <algorithm>
#include <future>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/engine/pooler.h"
#include "halley/engine/testing/engine_fixture.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;

using Ids = std::vector<int32_t>;
using Kind = Pooling::Kind;

TEST(Pooler, AsksForTheRowsOfItsKindOnce) {
  const auto rows_of = [](Pooler& pooler, int64_t num_past, int64_t num_rows) {
    const Pooler::Rows rows = pooler.ask(num_past, num_rows);
    return std::pair(rows.begin, rows.end);
  };
  Pooler mean({.kind = Kind::kMean}, 7);
  EXPECT_EQ(rows_of(mean, 0, 3), std::pair(int64_t{0}, int64_t{3}));
  EXPECT_EQ(rows_of(mean, 0, 5), std::pair(int64_t{3}, int64_t{5})) << "after a preemption";
  EXPECT_EQ(rows_of(mean, 5, 2), std::pair(int64_t{0}, int64_t{2}));
  Pooler last({.kind = Kind::kLast}, 7);
  EXPECT_EQ(rows_of(last, 0, 6), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(rows_of(last, 6, 1), std::pair(int64_t{0}, int64_t{1}));
}

TEST(Pooler, AddsInF64) {
  Pooler mean({.kind = Kind::kMean}, 3);
  EXPECT_TRUE(mean.add(std::vector<float>{1e8f, 1}));
  EXPECT_TRUE(mean.add(std::vector<float>{1, 2}));
  EXPECT_FALSE(mean.is_complete());
  EXPECT_TRUE(mean.add(std::vector<float>{-1e8f, 6}));
  EXPECT_TRUE(mean.is_complete());
  EXPECT_THAT(mean.take(), ElementsAre(1.0f / 3, 3));
  Pooler logits({.kind = Kind::kTokenLogits, .token_ids = {2, 0}}, 3);
  EXPECT_TRUE(logits.add(std::vector<float>{5, std::numeric_limits<float>::quiet_NaN(), 7}));
  EXPECT_THAT(logits.take(), ElementsAre(7, 5));
  Pooler broken({.kind = Kind::kLast}, 1);
  EXPECT_FALSE(broken.add(std::vector<float>{0, std::numeric_limits<float>::infinity()}));
}

/// Computes by the definition what a request must give.
std::vector<float> pooled_alone(const GenerateRequest& request) {
  const Ids& ids = request.prompt_ids;
  const Pooling& pooling = *request.pooling;
  if (pooling.kind == Kind::kTokenLogits) {
    std::vector<float> logits(static_cast<size_t>(fake_vocab_size())), chosen;
    hashed_logits(ids, logits);
    for (const int32_t id : pooling.token_ids) chosen.push_back(logits[static_cast<size_t>(id)]);
    return chosen;
  }
  if (pooling.kind == Kind::kLast) return FakeCausalLm::hidden_of(ids);
  std::vector<double> sums(FakeCausalLm::kHiddenSize, 0.0);
  for (size_t n = 1; n <= ids.size(); ++n) {
    const std::vector<float> hidden = FakeCausalLm::hidden_of(std::span(ids).first(n));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += hidden[i];
  }
  std::vector<float> mean;
  for (const double sum : sums) {
    mean.push_back(static_cast<float>(sum / static_cast<double>(ids.size())));
  }
  return mean;
}

GenerateRequest pooled_request(Ids ids, Pooling pooling) {
  GenerateRequest request;
  request.prompt_ids = std::move(ids);
  request.pooling = std::move(pooling);
  return request;
}

/// All events of requests, by their number.
struct Events {
  std::map<size_t, std::vector<TokenEvent>> of;

  /// Submits all, and waits for their ends.
  void run(Engine& engine, const std::vector<GenerateRequest>& requests) {
    for (size_t i = 0; i < requests.size(); ++i) {
      const SubmitResult result = engine.submit(
          requests[i], i, [this, i](const TokenEvent& event) { of[i].push_back(event); });
      ASSERT_EQ(result.status, Submit::kQueued) << result.message;
    }
    engine.wait_until_idle();
  }
};

class PooledRequests : public OnFakeModels {};
INSTANTIATE_TEST_SUITE_P(Models, PooledRequests, fake_devices(), name_of_fake_device);

TEST_P(PooledRequests, GiveWhatTheyWouldAloneAmongOthers) {
  EngineConfig config;
  config.max_num_seqs = 5;
  config.max_num_batched_tokens = 7;  // chunks
  config.page_tokens = 4;
  config.max_model_len = 64;
  config.kv_bytes = 20 * 4 * 2 * 2 * 4;  // few pages: sequences are preempted
  const auto engine = fake_engine(fake_model(), config);
  std::mt19937 random(5);
  std::vector<GenerateRequest> requests;
  const Ids beginning = {20, 21, 22, 23, 24, 25, 26, 27, 28};  // cached by the first ones
  for (int i = 0; i < 60; ++i) {
    Ids ids = beginning;
    ids.resize(random() % (beginning.size() + 1));
    const size_t length = 1 + random() % 30;
    for (size_t n = 0; n < length; ++n) ids.push_back(static_cast<int32_t>(18 + random() % 20));
    if (i % 2 == 0) {
      requests.push_back(greedy_request(std::move(ids), 25));
    } else {
      const Kind kind = std::array{Kind::kLast, Kind::kMean, Kind::kTokenLogits}[i / 2 % 3];
      Pooling pooling = {.kind = kind};
      if (kind == Kind::kTokenLogits) pooling.token_ids = {3, 40, 3};
      requests.push_back(pooled_request(std::move(ids), std::move(pooling)));
    }
  }
  Events events;
  events.run(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const std::vector<TokenEvent>& own = events.of[i];
    if (!requests[i].pooling) {
      Ids ids;
      for (const TokenEvent& event : own) {
        if (event.token_id) ids.push_back(*event.token_id);
        EXPECT_THAT(event.pooled, IsEmpty());
      }
      EXPECT_EQ(ids, tokens_alone(requests[i], fake_vocab_size()));
      continue;
    }
    ASSERT_EQ(own.size(), 1u);
    EXPECT_EQ(own[0].finish_reason, FinishReason::kStop);
    EXPECT_FALSE(own[0].token_id);
    EXPECT_EQ(own[0].pooled, pooled_alone(requests[i]));
    EXPECT_EQ(own[0].times->num_output_tokens, 0);
  }
  EXPECT_THAT(engine->stats().num_preemptions, Gt(0));
}

TEST_P(PooledRequests, UseThePrefixCacheButForMeans) {
  EngineConfig config;
  config.page_tokens = 4;
  const auto engine = fake_engine(fake_model(), config);
  const Ids ids = {20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
  const auto cached_tokens_of = [&](Kind kind) {
    Pooling pooling = {.kind = kind};
    if (kind == Kind::kTokenLogits) pooling.token_ids = {1};
    const std::vector<GenerateRequest> requests = {pooled_request(ids, pooling)};
    Events events;
    events.run(*engine, requests);
    EXPECT_EQ(events.of[0].at(0).pooled, pooled_alone(requests[0]));
    return events.of[0].at(0).times->num_cached_tokens;
  };
  EXPECT_EQ(cached_tokens_of(Kind::kMean), 0);
  EXPECT_EQ(cached_tokens_of(Kind::kLast), 8) << "pages that a mean has computed are kept";
  EXPECT_EQ(cached_tokens_of(Kind::kTokenLogits), 8);
  EXPECT_EQ(cached_tokens_of(Kind::kMean), 0) << "all rows are needed";
  EXPECT_EQ(engine->stats().num_prompt_tokens, 40);
  EXPECT_EQ(engine->stats().num_output_tokens, 0);
}

TEST_P(PooledRequests, SayWhyTheyAreInvalid) {
  const auto engine = fake_engine(fake_model());
  const auto message_of = [](Engine& asked, GenerateRequest request) {
    const SubmitResult result = asked.submit(std::move(request), 1, [](const TokenEvent&) {});
    EXPECT_EQ(result.status, Submit::kInvalid);
    return result.message;
  };
  EXPECT_THAT(message_of(*engine, pooled_request({1}, {.kind = Kind::kTokenLogits})),
              HasSubstr("pooling: expected 1 to 64 token ids, got 0"));
  EXPECT_THAT(
      message_of(*engine, pooled_request({1}, {.kind = Kind::kTokenLogits, .token_ids = {44}})),
      HasSubstr("pooling: expected token ids of 0 to 43, got 44"));
  GenerateRequest request = pooled_request({1}, {});
  request.sampling.num_prompt_logprobs = 0;
  EXPECT_THAT(message_of(*engine, request), HasSubstr("pooling: expected no constraint"));
  request = pooled_request({1}, {});
  request.constraint = fake_constraint("a+");
  EXPECT_THAT(message_of(*engine, request), HasSubstr("pooling: expected no constraint"));
  EXPECT_EQ(engine->hidden_size(), FakeCausalLm::kHiddenSize);

  auto model = fake_model();
  model->give_no_hidden_states();
  const auto without = fake_engine(std::move(model));
  EXPECT_EQ(without->hidden_size(), 0);
  EXPECT_THAT(message_of(*without, pooled_request({1}, {.kind = Kind::kMean})),
              HasSubstr("pooling: expected a model that gives hidden states"));
  Events events;
  events.run(*without, {pooled_request({1}, {.kind = Kind::kTokenLogits, .token_ids = {2}})});
  EXPECT_EQ(events.of[0].at(0).pooled.size(), 1u);
}

TEST_P(PooledRequests, EndWithAnErrorWhereTheModelIsBroken) {
  const auto broken = [](std::span<const int32_t>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), std::numeric_limits<float>::quiet_NaN());
  };
  const auto engine = fake_engine(fake_model(broken));
  Events events;
  events.run(*engine, {pooled_request({1, 2}, {.kind = Kind::kTokenLogits, .token_ids = {2}}),
                       pooled_request({1, 2}, {.kind = Kind::kMean})});
  EXPECT_EQ(events.of[0].at(0).finish_reason, FinishReason::kError);
  EXPECT_THAT(events.of[0].at(0).error, HasSubstr("hidden states or logits: expected finite"));
  EXPECT_EQ(events.of[1].at(0).finish_reason, FinishReason::kStop);
}

TEST_P(PooledRequests, CanBeCancelled) {
  EngineConfig config;
  config.max_num_batched_tokens = 64;
  const auto engine = fake_engine(fake_model(), config);
  std::promise<FinishReason> reason;
  const SubmitResult result =
      engine->submit(pooled_request(Ids(400, 20), {.kind = Kind::kMean}), 7,
                     [&](const TokenEvent& event) { reason.set_value(*event.finish_reason); });
  ASSERT_EQ(result.status, Submit::kQueued);
  engine->cancel(7);
  EXPECT_THAT(reason.get_future().get(),
              testing::AnyOf(FinishReason::kCancelled, FinishReason::kStop));
  engine->wait_until_idle();
  EXPECT_EQ(engine->stats().num_running, 0);
}

}  // namespace
}  // namespace halley
