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
  StepRunner* step_runner() override { return this; }
  std::string device_name() const override { return "a device"; }

  void start_slot(int32_t slot, const TokenChoice&, std::span<const int32_t>,
                  std::span<const int32_t>) override {
    calls.push_back("start " + std::to_string(slot));
  }
  void launch(const RunnerStep& step, const KvCacheView&) override {
    calls.push_back("launch " + std::to_string(step.batch.token_ids.size()));
  }
  const StepResult& wait() override {
    calls.push_back("wait");
    return result_;
  }

  std::vector<std::string> calls;

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
  runner->wait();
  const std::array<BatchSequence, 1> decode = {{{0, 1, 6, {}}}};
  model.forward({std::span(ids).first(1), decode, {}}, {}, {});
  EXPECT_THAT(inner.calls, ElementsAre("prepare 5", "start 3", "launch 3", "wait", "forward 1"));

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

TEST(CountedModel, SumsFloorsOfPrefillsAndDecodes) {
  const std::vector<CountedStep> steps = {
      {{100, 0, 0}, 2, 2, true}, {{10, 500, 0}, 3, 40, false}, {{300, 1, 0}, 1, 1, true}};
  const FloorSum sum = sum_floors(steps, ProductType::kF16, {.bytes = 10, .f16 = 5});
  EXPECT_EQ(sum.decode_seconds, 40);
  EXPECT_EQ(sum.prefill_seconds, 100);
  EXPECT_EQ(sum.num_decode_steps, 2);
  EXPECT_EQ(sum.num_prefill_steps, 1);
  EXPECT_EQ(sum.num_sequences_max, 3);
}

}  // namespace
}  // namespace halley
