#include "halley/models/base/counted_model.h"

#include <array>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::ElementsAre;

/// A model on a device that computes nothing and remembers what it was told.
class DeviceModel final : public CausalLm, public StepRunner {
 public:
  const ModelShape& shape() const override { return shape_; }
  void forward(const ForwardBatch& batch, const KvCacheView&, Matrix) override {
    calls.push_back("forward " + std::to_string(batch.token_ids.size()));
  }
  std::optional<int64_t> prepare(const StepLimits& limits) override {
    calls.push_back("prepare " + std::to_string(limits.num_rows));
    return 77;
  }
  std::vector<OpTime> op_costs(const ForwardBatch&, const KvCacheView&, Matrix) override {
    calls.push_back("costs");
    return {{.name = "step"}};
  }
  StepRunner* step_runner() override { return this; }
  std::string device_name() const override { return "a device"; }

  void start_slot(int32_t slot, const TokenChoice&, std::span<const int32_t>,
                  std::span<const int32_t>) override {
    calls.push_back("start " + std::to_string(slot));
  }
  void choose(std::span<const MaskedChoice> choices) override {
    calls.push_back("choose " + std::to_string(choices.size()));
  }
  bool is_ready() const override { return true; }
  void launch(const RunnerStep& step, const KvCacheView&) override {
    calls.push_back("launch " + std::to_string(step.batch.token_ids.size()));
  }
  const StepResult& wait() override {
    calls.push_back("wait");
    result_.span = span;
    return result_;
  }

  std::vector<std::string> calls;
  std::optional<StepSpan> span;

 private:
  ModelShape shape_;
  StepResult result_;
};

/// One layer without weights: a position costs 2 operations for each row that sees it, a row 10, a
/// row of logits 100.
DecoderCost unit_cost() {
  return {.row_linear_operations = 10,
          .logit_operations = 100,
          .position_operations = 2,
          .windows = {0},
          .position_bytes = 1,
          .always_bytes = 1000};
}

TEST(CountedModel, PassesEverythingOnAndCountsSteps) {
  auto owned = std::make_unique<DeviceModel>();
  const DeviceModel& inner = *owned;
  const auto account = std::make_shared<StepAccount>(unit_cost());
  CountedModel model(std::move(owned), account);
  EXPECT_EQ(model.device_name(), "a device");
  EXPECT_EQ(model.prepare({.num_rows = 5}), 77);
  StepRunner* runner = model.step_runner();
  ASSERT_NE(runner, nullptr);
  EXPECT_EQ(model.step_runner(), runner);
  runner->start_slot(3, {}, {}, {});
  const std::array<int32_t, 3> ids = {1, 2, 3};
  const std::array<BatchSequence, 2> sequences = {{{0, 2, 0, {}}, {2, 1, 4, {}}}};
  const std::array<int32_t, 2> logit_rows = {0, 1};
  const std::array<RowChoice, 2> choices = {{{1, 0}, {2, 1}}};
  runner->launch({{ids, sequences, logit_rows}, choices}, {});
  const TokenMask allowed = {1};
  const std::array<MaskedChoice, 1> masked = {{{.slot = 1, .allowed = &allowed}}};
  runner->choose(masked);
  EXPECT_TRUE(runner->is_ready());
  runner->wait();
  runner->wait();  // of the choice, which is no step
  const std::array<BatchSequence, 1> decode = {{{0, 1, 6, {}}}};
  model.forward({std::span(ids).first(1), decode, {}}, {}, {});
  EXPECT_EQ(model.op_costs({}, {}, {}).size(), 1u);
  EXPECT_THAT(inner.calls, ElementsAre("prepare 5", "start 3", "launch 3", "choose 1", "wait",
                                       "wait", "forward 1", "costs"));

  const std::vector<CountedStep> steps = account->take();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_FALSE(steps[0].is_decode);
  EXPECT_EQ(steps[0].num_sequences, 2);
  EXPECT_EQ(steps[0].num_rows, 3);
  EXPECT_EQ(steps[0].cost.bytes, 1000 + 2 + 5);
  EXPECT_EQ(steps[0].cost.linear_operations, 30);
  EXPECT_EQ(steps[0].cost.dense_operations, 3 * 100 + 2 * (1 + 2 + 5));  // rows 0, 1 and 2
  EXPECT_TRUE(steps[1].is_decode);
  EXPECT_EQ(steps[1].cost.dense_operations, 2 * 7);
  EXPECT_TRUE(account->take().empty());
}

/// A device that was busy from `begin_us` to `end_us`.
CountedStep busy(bool is_decode, int64_t num_sequences, double begin_us, double end_us) {
  return {.num_sequences = num_sequences,
          .num_rows = num_sequences,
          .is_decode = is_decode,
          .span = StepSpan{begin_us, end_us},
          .launch_us = 100,
          .wait_us = 250};
}

TEST(CountedModel, NotesWhenTheDeviceWorkedOnAStep) {
  auto owned = std::make_unique<DeviceModel>();
  DeviceModel& inner = *owned;
  const auto account = std::make_shared<StepAccount>(unit_cost());
  CountedModel model(std::move(owned), account);
  StepRunner* runner = model.step_runner();
  const std::array<int32_t, 1> ids = {1};
  const std::array<BatchSequence, 1> decode = {{{0, 1, 6, {}}}};
  const std::array<RowChoice, 1> choices = {{{0, 0}}};
  for (int i = 0; i < 2; ++i) runner->launch({{ids, decode, {}}, choices}, {});
  EXPECT_TRUE(account->take().empty());  // none has ended
  inner.span = {10, 17};
  runner->wait();
  const std::vector<CountedStep> first = account->take();
  ASSERT_EQ(first.size(), 1u);
  ASSERT_TRUE(first[0].span.has_value());
  EXPECT_EQ(first[0].span->begin_us, 10);
  EXPECT_EQ(first[0].span->end_us, 17);
  EXPECT_GE(first[0].launch_us, 0);
  EXPECT_GE(first[0].wait_us, 0);
  inner.span.reset();
  runner->wait();
  const std::vector<CountedStep> second = account->take();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_FALSE(second[0].span.has_value());
}

TEST(CountedModel, IdleTimeIsBetweenDecodesAlone) {
  std::vector<CountedStep> steps = {busy(false, 1, 0, 10), busy(true, 1, 13, 20),
                                    busy(true, 1, 25, 30), busy(false, 2, 37, 40),
                                    busy(true, 2, 41, 50), busy(true, 2, 52, 60)};
  EXPECT_THAT(idle_between_decodes(steps), ElementsAre(5, 2));
  steps[2].span.reset();
  EXPECT_THAT(idle_between_decodes(steps), ElementsAre(2));
}

TEST(CountedModel, SumsTimesOfTheDeviceAndItsCaller) {
  std::vector<CountedStep> steps = {busy(false, 1, 1e6, 3e6), busy(true, 4, 3.5e6, 4e6),
                                    busy(true, 2, 4e6, 5e6)};
  const StepTimes times = sum_times(steps);
  EXPECT_DOUBLE_EQ(times.prefill_seconds, 2);
  EXPECT_DOUBLE_EQ(times.decode_seconds, 1.5);
  EXPECT_DOUBLE_EQ(times.idle_seconds, 0.5);
  EXPECT_DOUBLE_EQ(times.decode_launch_seconds, 200e-6);
  EXPECT_DOUBLE_EQ(times.prefill_launch_seconds, 100e-6);
  EXPECT_DOUBLE_EQ(times.wait_seconds, 750e-6);
  EXPECT_DOUBLE_EQ(times.decode_sequences, 3);
  steps[1].span.reset();  // then nothing is known
  EXPECT_EQ(sum_times(steps).prefill_seconds, 0);
}

TEST(CountedModel, SumsFloorsOfPrefillsAndDecodes) {
  const std::vector<CountedStep> steps = {
      {{100, 0, 0}, 2, 2, true}, {{10, 500, 0}, 3, 40, false}, {{300, 1, 0}, 1, 1, true}};
  const FloorSum sum = sum_floors(steps, GemmType::kF16, {.bytes = 10, .f16 = 5});
  EXPECT_EQ(sum.decode_seconds, 40);
  EXPECT_EQ(sum.prefill_seconds, 100);
  EXPECT_EQ(sum.num_decode_steps, 2);
  EXPECT_EQ(sum.num_prefill_steps, 1);
  EXPECT_EQ(sum.num_sequences_max, 3);
}

}  // namespace
}  // namespace halley
