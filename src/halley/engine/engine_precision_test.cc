// Requests in several precisions on the fake models: the clock advances by what a step takes in its
// precision, and the fake cache shows in which one each position was computed.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/testing/engine_fixture.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kFullMs = 10, kLowMs = 5;

class EnginePrecision : public OnFakeModels {
 protected:
  void make_engine(EngineConfig config, bool has_levels = true) {
    auto model = fake_model();
    if (has_levels) model->levels = fake_levels();
    model->on_forward = [this](const ForwardBatch& batch) {
      milliseconds_ += batch.precision == Precision::kLow ? kLowMs : kFullMs;
      ++num_steps_[batch.precision == Precision::kLow ? 1 : 0];
    };
    config.page_tokens = 4;
    engine_ = std::make_unique<Engine>(
        std::move(model), fake_tokenizer(), std::vector<int32_t>{kFakeEos}, config,
        [this] { return TimePoint(std::chrono::milliseconds(milliseconds_)); });
  }

  struct Outputs {
    std::vector<GenerateResult> results;
    std::vector<int64_t> num_low;  // tokens of each request
  };
  Outputs run(const std::vector<GenerateRequest>& requests) {
    Outputs outputs;
    outputs.num_low.resize(requests.size());
    outputs.results = generate_all(*engine_, requests, [&](size_t index, const TokenEvent& event) {
      if (event.token_id && event.is_low) ++outputs.num_low[index];
    });
    return outputs;
  }

  std::atomic<int64_t> milliseconds_ = 1000;
  std::atomic<int64_t> num_steps_[2] = {0, 0};  // full, low
  std::unique_ptr<Engine> engine_;              // the last member: its thread uses the others
};

INSTANTIATE_TEST_SUITE_P(Models, EnginePrecision, fake_devices(), name_of_fake_device);

GenerateRequest request_of(PrecisionMode mode, std::vector<int32_t> prompt_ids,
                           int64_t max_tokens = 40) {
  GenerateRequest request = greedy_request(std::move(prompt_ids), max_tokens);
  request.sampling.ignore_eos = true;
  request.precision = mode;
  return request;
}

TEST_P(EnginePrecision, RunsInTheBestOneUnlessSomebodyAsksForAnother) {
  make_engine({});
  const GenerateRequest request = request_of(PrecisionMode::kFull, {3, 4, 5});
  const Outputs outputs = run({request, request});
  EXPECT_EQ(num_steps_[1], 0);
  EXPECT_THAT(outputs.num_low, testing::Each(0));
  const PrecisionStats stats = engine_->stats().precision;
  ASSERT_EQ(stats.levels.size(), 2u);
  EXPECT_EQ(stats.levels[0].name, "f16");
  EXPECT_EQ(stats.levels[0].num_tokens, 80);
  EXPECT_EQ(stats.levels[1].num_steps, 0);
}

TEST_P(EnginePrecision, RunsInTheLowestWhereAllAskForIt) {
  EngineConfig config;
  config.precision = PrecisionMode::kLow;
  make_engine(config);
  GenerateRequest request = request_of(PrecisionMode::kLow, {3, 4, 5});
  request.precision.reset();  // the engine's
  const Outputs outputs = run({request, request});
  EXPECT_EQ(num_steps_[0], 0);
  EXPECT_THAT(outputs.num_low, testing::Each(40));
  EXPECT_EQ(engine_->stats().precision.levels[1].num_tokens, 80);
}

TEST_P(EnginePrecision, GoesLowWhereFullBreaksTheObjectiveOnly) {
  EngineConfig config;
  config.precision = PrecisionMode::kAuto;
  for (const double tpot : {0.025, 0.008}) {
    config.slo.tpot = tpot;
    make_engine(config);
    GenerateRequest request = request_of(PrecisionMode::kAuto, {3, 4, 5}, 100);
    const Outputs outputs = run({request, request});
    const PrecisionStats stats = engine_->stats().precision;
    if (tpot > 2 * 0.010) {  // two steps are in flight on a device
      EXPECT_THAT(outputs.num_low, testing::Each(0));
      EXPECT_EQ(stats.num_switches, 0);
    } else {
      // Not all: the mean of the times between tokens is what counts.
      EXPECT_THAT(outputs.num_low, testing::Each(testing::Ge(40)));
      EXPECT_EQ(stats.num_slow_requests, 0);
      EXPECT_GE(stats.num_switches, 1);
      EXPECT_EQ(stats.last_switches.front().level, 1u);
      const PredictedSteps& low = stats.levels[1].predicted;
      EXPECT_GT(low.predicted_seconds, 0);
      EXPECT_NEAR(low.predicted_seconds / low.measured_seconds, 1, 0.3);
      const PredictedSteps& switched = stats.levels[1].switched;
      EXPECT_GT(switched.measured_seconds, 0);
      EXPECT_LT(switched.measured_seconds, low.measured_seconds);
    }
  }
}

// Requests of all kinds share prefixes while the others are forced low: those that demand full
// precision have the tokens of an engine that knows nothing else.
TEST_P(EnginePrecision, KeepsPinnedRequestsFull) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    EngineConfig config;
    config.precision = seed % 2 == 0 ? PrecisionMode::kAuto : PrecisionMode::kLow;
    config.slo.tpot = 0.008;
    config.max_num_seqs = 4;
    config.max_num_batched_tokens = 12;
    config.kv_bytes = seed % 3 == 0 ? 4096 : 0;  // now and then with preemptions
    config.max_model_len = 100;
    make_engine(config);
    std::vector<GenerateRequest> requests;
    for (int i = 0; i < 24; ++i) {
      std::vector<int32_t> prompt_ids;
      for (uint32_t j = 0; j < 9 + random() % 8; ++j)
        prompt_ids.push_back(2 + static_cast<int32_t>(j));
      prompt_ids.push_back(2 + static_cast<int32_t>(random() % 20));
      requests.push_back(request_of(static_cast<PrecisionMode>(random() % 3), prompt_ids,
                                    1 + static_cast<int64_t>(random() % 40)));
      requests.back().sampling.ignore_eos = false;  // as tokens_alone() has it
      if (random() % 4 == 0) requests.back().constraint = fake_constraint("[a-z]*");
    }
    const Outputs outputs = run(requests);
    int64_t num_low = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(outputs.results[i].submit.status, Submit::kQueued)
          << outputs.results[i].submit.message;
      ASSERT_EQ(outputs.results[i].error, "");
      num_low += outputs.num_low[i];
      if (requests[i].precision != PrecisionMode::kFull) continue;
      EXPECT_EQ(outputs.num_low[i], 0);
      EXPECT_EQ(outputs.results[i].token_ids, tokens_alone(requests[i], fake_vocab_size())) << i;
    }
    EXPECT_GT(num_low, 0);
    const PrecisionStats stats = engine_->stats().precision;
    EXPECT_EQ(stats.levels[1].num_tokens, num_low);
    EXPECT_EQ(stats.levels[0].num_tokens + num_low, engine_->stats().num_output_tokens);
  }
}

TEST_P(EnginePrecision, CountsBrokenObjectives) {
  EngineConfig config;
  config.slo = {.ttft = 0.005, .tpot = 0.005};  // which no step holds
  make_engine(config);
  GenerateRequest late = request_of(PrecisionMode::kFull, {3, 4}, 5);
  GenerateRequest patient = late;
  patient.slo = {.ttft = 10, .tpot = 10};
  run({late, patient, late});
  const PrecisionStats stats = engine_->stats().precision;
  EXPECT_EQ(stats.num_late_first_tokens, 2);
  EXPECT_EQ(stats.num_slow_requests, 2);
}

TEST_P(EnginePrecision, TellsOfSwitches) {
  std::vector<PrecisionSwitch> switches;
  EngineConfig config;
  config.precision = PrecisionMode::kLow;
  config.on_precision_switch = [&](const PrecisionSwitch& last) { switches.push_back(last); };
  make_engine(config);
  run({request_of(PrecisionMode::kLow, {3}, 3)});
  run({request_of(PrecisionMode::kFull, {3}, 3)});
  engine_->wait_until_idle();
  ASSERT_EQ(switches.size(), 2u);
  EXPECT_EQ(switches[0].level, 1u);
  EXPECT_EQ(switches[1].level, 0u);
  EXPECT_EQ(engine_->stats().precision.num_switches, 2);
}

TEST_P(EnginePrecision, NeedsAModelWithTwo) {
  EngineConfig config;
  for (const PrecisionMode mode : {PrecisionMode::kLow, PrecisionMode::kAuto}) {
    config.precision = mode;
    EXPECT_THAT([&] { make_engine(config, /*has_levels=*/false); },
                ThrowsMessage<InputError>(HasSubstr(str("two precisions for \"", name_of(mode)))));
  }
  make_engine({}, /*has_levels=*/false);
  const Outputs outputs = run({request_of(PrecisionMode::kLow, {3})});
  EXPECT_EQ(outputs.results[0].submit.status, Submit::kInvalid);
  EXPECT_THAT(outputs.results[0].submit.message, HasSubstr("precision: expected full or auto"));
  EXPECT_EQ(run({request_of(PrecisionMode::kAuto, {3}, 4)}).results[0].token_ids.size(), 4u);
  EXPECT_TRUE(engine_->stats().precision.levels.empty());
}

}  // namespace
}  // namespace halley
