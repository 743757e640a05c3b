#include "halley/cli/bench_model.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace halley::cli {
namespace {

ModelPart linear(std::string name, ActivationQuant activation, size_t packed_bytes) {
  LinearPlan plan;
  plan.weight.activation = activation;
  plan.packed_bytes = packed_bytes;
  return {.name = std::move(name), .kind = "linear", .plans = {plan}, .gpu_plans = {}};
}

TEST(WithRates, TakesTheDeclaredOnes) {
  const DeviceRates declared = {.bytes = 1, .f16 = 0, .e4m3 = 3, .s8 = 0};
  const DeviceRates others = {.bytes = 10, .f16 = 20, .e4m3 = 30, .s8 = 40};
  const DeviceRates rates = with_rates(declared, others);
  EXPECT_EQ(rates.bytes, 1);
  EXPECT_EQ(rates.f16, 20);
  EXPECT_EQ(rates.e4m3, 3);
  EXPECT_EQ(rates.s8, 40);
}

TEST(RatesOf, AreMeasuredOnTheHostAndKnownOnADevice) {
  BenchModel model;
  model.is_on_host = true;
  EXPECT_EQ(rates_of(model, {}, 5e9).bytes, 5e9);
  EXPECT_EQ(rates_of(model, {}, 5e9).f16, 0);
  EXPECT_EQ(rates_of(model, {.bytes = 7}, 5e9).bytes, 7);
  model.is_on_host = false;
  EXPECT_EQ(rates_of(model, {}, 5e9).bytes, kH200Rates.bytes);
  EXPECT_EQ(rates_of(model, {.s8 = 7}, 5e9).s8, 7);
}

TEST(RatesJson, NamesWhereTheyAreFrom) {
  const OrderedJson json = rates_json({.bytes = 1, .f16 = 2, .e4m3 = 3, .s8 = 4}, kRatesOfHost);
  EXPECT_EQ(json.at("unless_stated"), kRatesOfHost);
  EXPECT_EQ(json.at("bytes_per_s"), 1);
  EXPECT_EQ(json.at("f16_per_s"), 2);
  EXPECT_EQ(json.at("e4m3_per_s"), 3);
  EXPECT_EQ(json.at("s8_per_s"), 4);
}

TEST(LinearType, IsThatOfMostBytes) {
  ModelPlan plan;
  EXPECT_EQ(linear_type_of(plan), GemmType::kF16);
  plan.parts = {linear("layers.0.qkv", ActivationQuant::kS8Token, 100),
                linear("layers.0.o", ActivationQuant::kNone, 60),
                linear("layers.0.down", ActivationQuant::kE4m3Static, 90)};
  EXPECT_EQ(linear_type_of(plan), GemmType::kS8);
  plan.parts.push_back(linear("layers.1.down", ActivationQuant::kE4m3Token, 20));
  EXPECT_EQ(linear_type_of(plan), GemmType::kE4m3);
}

TEST(LinearType, LeavesOutWhatIsNoLayer) {
  ModelPlan plan;
  plan.parts = {linear("layers.0.qkv", ActivationQuant::kS4S8Block128, 10),
                linear("lm_head", ActivationQuant::kNone, 1000)};
  plan.parts.push_back(linear("embedding", ActivationQuant::kNone, 1000));
  plan.parts.back().kind = "embedding";
  EXPECT_EQ(linear_type_of(plan), GemmType::kS8);
}

TEST(WeightReads, OfADeviceAreNone) {
  BenchModel model;
  model.is_on_host = false;
  WeightReads reads(model);
  reads.read();
  EXPECT_EQ(reads.bytes_per_second(), 0);
}

}  // namespace
}  // namespace halley::cli
