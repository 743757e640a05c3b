#include "halley/server/app/engine_bridge.h"

#include <gtest/gtest.h>

namespace halley {
namespace {

TEST(EngineBridge, HandsPrecisionAndSloOn) {
  ApiRequest request;
  GenerateRequest plain = make_generate_request(request, ToolDialect::kNone, {});
  EXPECT_EQ(plain.precision, std::nullopt);
  EXPECT_TRUE(plain.slo.is_empty());
  request.precision = PrecisionMode::kAuto;
  request.slo = {.ttft = 0.5, .tpot = 0.25};
  const GenerateRequest made = make_generate_request(request, ToolDialect::kNone, {});
  EXPECT_EQ(made.precision, PrecisionMode::kAuto);
  EXPECT_EQ(made.slo, request.slo);
}

TEST(EngineBridge, TellsThePrecisionAndItsLastSwitches) {
  PrecisionStats stats;
  stats.levels = {{.name = "f16"}, {.name = "e4m3"}};
  stats.level = 1;
  stats.reason = PrecisionReason::kDwell;
  stats.num_switches = 77;
  const ServerTime now{std::chrono::seconds(100)};
  stats.last_switches = {
      {.time = now - std::chrono::seconds(40), .level = 0, .reason = PrecisionReason::kHolds},
      {.time = now - std::chrono::milliseconds(500),
       .level = 1,
       .reason = PrecisionReason::kToken}};
  EngineConfig config;
  config.precision = PrecisionMode::kAuto;
  config.slo.tpot = 0.25;
  EXPECT_EQ(precision_state(config, stats, now), OrderedJson::parse(R"({
      "mode": "auto", "slo": {"ttft_ms": null, "tpot_ms": 250.0},
      "precisions": ["f16", "e4m3"], "precision": "e4m3", "reason": "dwell", "num_switches": 77,
      "last_switches": [{"precision": "f16", "reason": "holds", "seconds_ago": 40.0},
                        {"precision": "e4m3", "reason": "token", "seconds_ago": 0.5}]})"));
}

}  // namespace
}  // namespace halley
