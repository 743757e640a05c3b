// Costs against arithmetic written out by hand.
#include "halley/models/base/step_cost.h"

#include <array>
#include <cstddef>

#include <gtest/gtest.h>

namespace halley {
namespace {

LinearSpec linear_of(int64_t out_features, int64_t in_features) {
  return {.parts = {{.name = "w", .out_features = out_features, .stored_rows = out_features}},
          .in_features = in_features};
}

/// Three layers of width 8 with 4 query and 2 kv heads of 2; the last has a window of 5.
DecoderConfig small_config() {
  DecoderConfig config;
  config.hidden_size = 8;
  config.num_layers = 3;
  config.vocab_size = 100;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 2;
  for (int64_t i = 0; i < 3; ++i) {
    LayerSpec layer;
    layer.qkv = linear_of(16, 8);
    layer.o = linear_of(8, 8);
    layer.mlp.gate_up = {linear_of(40, 8)};
    layer.mlp.down = {linear_of(8, 20)};
    layer.window = i == 2 ? 5 : 0;
    config.layers.push_back(layer);
  }
  return config;
}

constexpr double kLayerOperations = 2.0 * (16 * 8 + 8 * 8 + 40 * 8 + 8 * 20);
constexpr double kPositionBytes = 2 * 2 * 2 * 2;  // keys and values, heads, their size, f16

WeightMemory memory_of_bytes(const std::array<std::byte, 1000>& storage) {
  const WeightMemory::Bytes all(storage);
  return {.always_read = {all.subspan(0, 300), all.subspan(300, 100)},
          .experts = {all.subspan(400, 600)},
          .expert_share = 0.25};
}

TEST(StepCost, CountsADecodeOfTwoSequences) {
  const std::array<std::byte, 1000> storage{};
  WeightMemory memory = memory_of_bytes(storage);
  memory.experts.clear();
  const DecoderCost model = decoder_cost(small_config(), memory, KvDType::kF16);
  const std::array<SequenceStep, 2> sequences = {{{.num_past = 9}, {.num_past = 2}}};
  const StepCost cost = step_cost(model, sequences, 2);
  // Two layers see 10 and 3 positions, the one with a window 5 and 3.
  const double num_seen = 2 * (10 + 3) + (5 + 3);
  EXPECT_EQ(cost.bytes, 400 + num_seen * kPositionBytes);
  EXPECT_EQ(cost.linear_operations, 2 * 3 * kLayerOperations);
  EXPECT_EQ(cost.dense_operations, 2 * (2 * 100 * 8) + num_seen * (4 * 4 * 2));
}

TEST(StepCost, CountsAPrefillRowByRow) {
  const DecoderCost model = decoder_cost(small_config(), {}, KvDType::kF16);
  for (const SequenceStep& chunk :
       {SequenceStep{0, 7}, SequenceStep{3, 4}, SequenceStep{6, 3}, SequenceStep{0, 1}}) {
    double num_seen = 0;
    for (int64_t i = 0; i < chunk.num_new; ++i) {
      const auto length = static_cast<double>(chunk.num_past + i + 1);
      num_seen += 2 * length + std::min(length, 5.0);
    }
    const auto length = static_cast<double>(chunk.num_past + chunk.num_new);
    const double num_read =
        2 * length + std::min(length, 5.0 + static_cast<double>(chunk.num_new) - 1);
    const StepCost cost = step_cost(model, {&chunk, 1}, 0);
    EXPECT_EQ(cost.dense_operations, num_seen * 32) << chunk.num_past << "+" << chunk.num_new;
    EXPECT_EQ(cost.bytes, num_read * kPositionBytes) << chunk.num_past << "+" << chunk.num_new;
  }
}

/// A row picks so many of the experts, of which `num_here` are on this rank.
DecoderConfig mixture_config(int64_t num_experts, int64_t num_experts_per_token, size_t num_here) {
  DecoderConfig config = small_config();
  for (LayerSpec& layer : config.layers) {
    layer.mlp.router = linear_of(num_experts, 8);
    layer.mlp.num_experts_per_token = num_experts_per_token;
    layer.mlp.gate_up.resize(num_here, layer.mlp.gate_up.front());
    layer.mlp.down.resize(num_here, layer.mlp.down.front());
  }
  return config;
}

TEST(StepCost, ExpertsCountAsOftenAsRowsPickThem) {
  const DecoderConfig config = mixture_config(4, 3, 4);
  const std::array<std::byte, 1000> storage{};
  const DecoderCost model = decoder_cost(config, memory_of_bytes(storage), KvDType::kF16);
  EXPECT_EQ(model.row_linear_operations, 3 * 2.0 * (16 * 8 + 8 * 8 + 3 * (40 * 8 + 8 * 20)));
  EXPECT_EQ(model.row_dense_operations, 3 * 2.0 * 4 * 8);
  const SequenceStep two_rows = {0, 2};
  const double kv_bytes = 3 * 2 * kPositionBytes;
  EXPECT_NEAR(step_cost(model, {&two_rows, 1}, 0).bytes, 400 + (1 - 0.75 * 0.75) * 600 + kv_bytes,
              1e-9);
}

/// A rank with 2 of 8 experts computes a quarter of what its rows pick, on average.
TEST(StepCost, RowsPickTheirShareOfTheExpertsThatAreHere) {
  const DecoderCost model = decoder_cost(mixture_config(8, 4, 2), {}, KvDType::kF16);
  EXPECT_EQ(model.row_linear_operations, 3 * 2.0 * (16 * 8 + 8 * 8 + 1 * (40 * 8 + 8 * 20)));
}

TEST(StepCost, TheFloorIsTheLongerOfReadingAndComputing) {
  const DeviceRates rates = {.bytes = 100, .f16 = 10, .e4m3 = 20, .s8 = 40};
  const StepCost step = {.bytes = 1000, .linear_operations = 80, .dense_operations = 50};
  EXPECT_EQ(floor_seconds(step, GemmType::kF16, rates), 13);
  EXPECT_EQ(floor_seconds(step, GemmType::kE4m3, rates), 10);
  EXPECT_EQ(floor_seconds({0, 80, 50}, GemmType::kE4m3, rates), 9);
  EXPECT_EQ(floor_seconds({0, 80, 50}, GemmType::kS8, rates), 7);
  // Unknown rates are left out of the floor.
  EXPECT_EQ(floor_seconds(step, GemmType::kF16, {.bytes = 50}), 20);
  EXPECT_EQ(floor_seconds(step, GemmType::kF16, {}), 0);
}

}  // namespace
}  // namespace halley
