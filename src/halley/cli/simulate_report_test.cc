#include "halley/cli/simulate_report.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/simulation/testing/plain_engine.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<SimulatedRequest> kRequests = {{0, 10, 3}, {0.5, 10, 3}, {2, 10, 3}};

SimulatedRun make_run(const SimulatedEngine& engine, const Slo& slo = {}) {
  SimulatedRun run = {
      .mode = engine.plan.config.precision, .result = simulate(engine, kRequests, 1), .report = {}};
  run.report = make_load_report(run.result.load, {.percents = {50, 90, 99}, .slo = slo});
  run.seconds = kept_seconds(engine, kRequests, run.result, slo, 0);
  return run;
}

TEST(SimulateReport, TellsWhatAReplayDoesNot) {
  const SimulatedEngine engine =
      make_plain_engine({.step_ms = {20, 10}, .mode = PrecisionMode::kLow});
  const std::string text = format_simulation(make_run(engine, {.tpot = 5e-3}), engine);
  EXPECT_THAT(text, HasSubstr("Share of device time in full (%):        0.0\n"));
  EXPECT_THAT(text, HasSubstr("Device time in e4m3 (s):                 0.09\n"));
  EXPECT_THAT(text, HasSubstr("Seconds that keep the SLO:               1 of 3\n"));
}

TEST(SimulateReport, HasNoSharesForAModelInOnePrecision) {
  const SimulatedEngine engine = make_plain_engine({});
  const SimulatedRun run = make_run(engine);
  EXPECT_THAT(format_simulation(run, engine), Not(HasSubstr("Share of device time")));
  EXPECT_THAT(format_simulation(run, engine), Not(HasSubstr("SLO")));
  const OrderedJson json = simulation_json(run, engine);
  EXPECT_FALSE(json.contains("share_of_time_in_full"));
  EXPECT_EQ(json.at("num_gpus"), 1);
  EXPECT_EQ(json.at("num_steps"), 9);
}

TEST(SimulateReport, ComparesRunsByRow) {
  std::vector<SimulatedRun> runs;
  for (const PrecisionMode mode : {PrecisionMode::kFull, PrecisionMode::kLow}) {
    runs.push_back(make_run(make_plain_engine({.step_ms = {20, 10}, .mode = mode})));
  }
  const std::string text = format_comparison(runs);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("\n     full     1     3       0      20.0  20.0  20.0"));
  EXPECT_THAT(text, HasSubstr("\n      low     1     3       0      10.0  10.0  10.0"));
}

TEST(SimulateReport, WritesTheTimeInEachPrecision) {
  const SimulatedEngine engine =
      make_plain_engine({.step_ms = {20, 10}, .mode = PrecisionMode::kFull});
  SimulatedRun run = make_run(engine);
  run.meets_goal = false;
  const OrderedJson json = simulation_json(run, engine);
  EXPECT_EQ(json.at("share_of_time_in_full"), 1);
  EXPECT_NEAR(json.at("seconds_by_precision").at("f16").get<double>(), 0.18, 1e-9);
  EXPECT_EQ(json.at("steps_by_precision").at("e4m3"), 0);
  EXPECT_EQ(json.at("meets_goal"), false);
}

}  // namespace
}  // namespace halley::cli
