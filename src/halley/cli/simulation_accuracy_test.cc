// The simulation of Llama 3 8B on an H200 versus what was measured there (bench/results).
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/cli/simulated_model.h"
#include "halley/cli/traffic.h"
#include "halley/client/load/summary.h"
#include "halley/json/json.h"
#include "halley/models/base/step_cost.h"
#include "halley/simulation/simulation.h"

namespace halley::cli {
namespace {

SimulatedModelOptions llama(const std::string& format) {
  return {.config_name = "llama-3-8b", .quant_config = format};
}

// Plans of large models take half a second.
const ModelPlan& plan_of(const std::string& format) {
  static std::map<std::string, ModelPlan> plans;
  const auto it = plans.find(format);
  if (it != plans.end()) return it->second;
  return plans.emplace(format, plan_simulated_model(llama(format))).first->second;
}

Json result_of(const std::string& file) {
  const std::string path = std::string(HALLEY_SOURCE_DIR "/bench/results/") + file;
  return parse_json(read_text_file(path, 1 << 20), path).at("result");
}

TEST(SimulationAccuracy, FloorsAreThoseOfTheBenchmarks) {
  // Devices pad weights and keep more scales than checkpoints have.
  constexpr double kTolerance = 0.03;
  for (const std::string format :
       {"f16", "fp8", "nestedfp", "w4a16", "w4a8", "w4a8_group", "w4ax"}) {
    const std::vector<std::string> names = ratio_names_of(plan_of(format));
    const std::vector<PrecisionLevel> levels = levels_of(plan_of(format), KvDType::kF16);
    for (size_t level = 0; level < levels.size(); ++level) {
      for (const int64_t batch : {1, 64}) {
        const std::string file =
            "gpu_latency_" + names[level] + "_batch" + std::to_string(batch) + ".json";
        const SequenceStep sequence = {.num_past = 1024 + 64 / 2 - 1};
        const std::vector<SequenceStep> step(static_cast<size_t>(batch), sequence);
        const DecoderCost& cost = levels[level].cost;
        const double floor =
            floor_seconds(step_cost(cost, step, batch), cost.linear_type, kH200Rates);
        const double expected = result_of(file).at("decode_step_floor_s").get<double>();
        EXPECT_NEAR(floor, expected, kTolerance * expected) << file;
      }
    }
  }
}

// `bench throughput` measured 512 requests of 1024 and 512 tokens, all sent at once.
TEST(SimulationAccuracy, ThroughputIsThatOfTheBenchmark) {
  constexpr double kTolerance = 0.1;
  const std::vector<SimulatedRequest> requests(512, {0, 1024, 512});
  for (const auto& [format, mode, name] :
       std::vector<std::tuple<std::string, PrecisionMode, std::string>>{
           {"f16", PrecisionMode::kFull, "f16"},
           {"fp8", PrecisionMode::kFull, "fp8"},
           {"nestedfp", PrecisionMode::kFull, "nested_full"},
           {"nestedfp", PrecisionMode::kLow, "nested_low"},
           {"w4a16", PrecisionMode::kFull, "w4a16"},
           {"w4a8", PrecisionMode::kFull, "w4a8"},
           {"w4ax", PrecisionMode::kFull, "w4ax"}}) {
    EngineConfig config;
    config.precision = mode;
    config.max_model_len = 1536;
    const SimulatedEngine engine = make_simulated_engine(plan_of(format), llama(format), config);
    const SimulationResult result = simulate(engine, requests, 1);
    const Json measured = result_of("gpu_throughput_" + name + ".json");
    const double elapsed = measured.at("elapsed_s").get<double>();
    EXPECT_NEAR(result.load.duration, elapsed, kTolerance * elapsed) << name;
    std::vector<double> firsts;
    for (const LoadOutcome& outcome : result.load.outcomes) {
      firsts.push_back(outcome.time_to_first_token);
    }
    const double first = measured.at("time_to_first_token_s").at("median").get<double>();
    EXPECT_NEAR(summarize(firsts, {}).median, first, kTolerance * first) << name;
  }
}

// A minute of traffic that low precision holds and full precision does not.
TEST(SimulationAccuracy, AutoKeepsWhatLowKeepsAndIsMostlyFull) {
  constexpr double kRateScale = 3.5;
  constexpr int64_t kSeconds = 60;
  const Slo slo = {.ttft = 0.2, .tpot = 0.0333};
  const Traffic traffic =
      make_traffic({.trace = HALLEY_SOURCE_DIR "/testdata/traces/azure_llm_2023_conv.csv",
                    .trace_start = 501,
                    .trace_seconds = kRateScale * kSeconds,
                    .rate_scale = kRateScale});
  std::vector<SimulatedRequest> requests;
  for (size_t i = 0; i < traffic.arrivals.size(); ++i) {
    requests.push_back({traffic.arrivals[i], traffic.input_lens[i], traffic.output_lens[i]});
  }
  EngineConfig config;
  // Steps pass their target by up to 30 %, while the planner learns how long they take.
  config.itl_target = {.kind = ItlTarget::Kind::kSeconds, .seconds = 0.024};
  config.slo = slo;
  SimulatedEngine engine = make_simulated_engine(plan_of("nestedfp"), llama("nestedfp"), config);
  const auto run = [&](PrecisionMode mode) {
    engine.plan.config.precision = mode;
    return simulate(engine, requests, 1);
  };
  const auto num_late = [&](const SimulationResult& result) {
    return kSeconds - kept_seconds(engine, requests, result, slo, kSeconds).kept;
  };
  const int64_t full = num_late(run(PrecisionMode::kFull));
  const int64_t low = num_late(run(PrecisionMode::kLow));
  const SimulationResult chosen = run(PrecisionMode::kAuto);
  EXPECT_GT(full, low + 1);
  EXPECT_LE(num_late(chosen), low + 1);
  EXPECT_GT(chosen.share_of_time_in_full(), 0.68);
}

}  // namespace
}  // namespace halley::cli
