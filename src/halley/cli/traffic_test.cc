#include "halley/cli/traffic.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cli {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::Le;
using testing::SizeIs;

TEST(Traffic, DrawsLengthsAroundTheOnesAskedFor) {
  const Traffic even = make_traffic({.num_prompts = 20, .input_len = 100, .output_len = 8});
  EXPECT_THAT(even.input_lens, AllOf(SizeIs(20), Each(100)));
  EXPECT_THAT(even.arrivals, AllOf(SizeIs(20), Each(0)));
  EXPECT_EQ(even.output_lens[3], 8);
  const Traffic uneven = make_traffic({.num_prompts = 200, .input_len = 100, .range_ratio = 0.5});
  EXPECT_THAT(uneven.input_lens, Each(AllOf(Ge(50), Le(150))));
  EXPECT_NE(std::ranges::min(uneven.input_lens), std::ranges::max(uneven.input_lens));
  // Nobody asks for nothing.
  const Traffic short_ones = make_traffic({.num_prompts = 50, .input_len = 1, .range_ratio = 1});
  EXPECT_THAT(short_ones.input_lens, Each(Ge(1)));
}

TEST(Traffic, ArrivesAtTheRate) {
  const Traffic load = make_traffic({.num_prompts = 100, .request_rate = 10});
  EXPECT_TRUE(std::ranges::is_sorted(load.arrivals));
  EXPECT_NEAR(load.arrivals.back(), 10, 1e-6);
}

TEST(Traffic, LastsUntilItsLastRequest) {
  EXPECT_EQ(make_traffic({.num_prompts = 3}).num_seconds, 0);
  EXPECT_EQ(make_traffic({.num_prompts = 25, .request_rate = 10}).num_seconds, 3);
}

TEST(Traffic, HasThousandRequestsUnlessToldOtherwise) {
  EXPECT_THAT(make_traffic({.input_len = 1}).arrivals, SizeIs(1000));
}

TEST(Traffic, SwingsBetweenTwoRates) {
  const TrafficOptions options{.num_prompts = 60,
                               .request_rate = 1,
                               .burstiness = INFINITY,
                               .peak_rate = 11,
                               .peak_period = 10};
  const Traffic load = make_traffic(options);
  EXPECT_NEAR(load.arrivals.back(), 10, 1e-9);  // 60 are due in a period of 6 a second
  const auto in_middle =
      std::ranges::count_if(load.arrivals, [](double time) { return time > 2.5 && time <= 7.5; });
  EXPECT_EQ(in_middle, 45);  // 30 -+ (15 + 5 * 10 / (2 pi)) are due then: the 8th to the 52nd
  TrafficOptions wrong = options;
  wrong.peak_rate = 0.5;
  EXPECT_THROW(make_traffic(wrong), InputError);
}

class TrafficTrace : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(path_) << "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                            "2023-11-16 18:00:00.0000000,10,5\n"
                            "2023-11-16 18:00:02.0000000,2000,7\n"
                            "2023-11-16 18:00:05.0000000,30,900\n";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_ = testing::TempDir() + "traffic_trace_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
};

TEST_F(TrafficTrace, IsPlayedInItsOwnTime) {
  const Traffic load = make_traffic({.num_prompts = 10, .trace = path_});
  EXPECT_THAT(load.arrivals, ElementsAre(0, 2, 5));
  EXPECT_THAT(load.input_lens, ElementsAre(10, 2000, 30));
  EXPECT_EQ(load.num_shortened, 0U);
  EXPECT_EQ(load.output_lens[2], 900);
}

TEST_F(TrafficTrace, IsPlayedWholeUnlessTheNumberIsGiven) {
  EXPECT_THAT(make_traffic({.trace = path_}).arrivals, ElementsAre(0, 2, 5));
  EXPECT_EQ(make_traffic({.trace = path_}).num_seconds, 6);
}

TEST_F(TrafficTrace, MayBeAWindowOfItself) {
  const Traffic load =
      make_traffic({.trace = path_, .trace_start = 1, .trace_seconds = 4, .rate_scale = 2});
  EXPECT_THAT(load.arrivals, ElementsAre(0.5));
  EXPECT_THAT(load.input_lens, ElementsAre(2000));
  EXPECT_EQ(load.num_seconds, 2);
  EXPECT_THAT(make_traffic({.trace = path_, .trace_start = 2}).arrivals, ElementsAre(0, 3));
  EXPECT_THROW(make_traffic({.trace = path_, .trace_start = 6}), InputError);
}

TEST_F(TrafficTrace, MayBeFasterAndShorter) {
  const Traffic load = make_traffic({.num_prompts = 2,
                                     .trace = path_,
                                     .rate_scale = 4,
                                     .trace_max_input = 100,
                                     .trace_max_output = 6});
  EXPECT_THAT(load.arrivals, ElementsAre(0, 0.5));
  EXPECT_THAT(load.input_lens, ElementsAre(10, 100));
  EXPECT_EQ(load.num_shortened, 1U);
  EXPECT_EQ(load.output_lens[0], 5);
  EXPECT_EQ(load.output_lens[1], 6);
}

TEST(Traffic, SaysWhichFileItCannotRead) {
  EXPECT_THROW(make_traffic({.trace = "no/such/trace.csv"}), InputError);
}

TEST_F(TrafficTrace, GivesItsWindowToResultFiles) {
  OrderedJson json;
  add_traffic_json({.trace = path_, .trace_start = 1, .rate_scale = 2}, json);
  EXPECT_EQ(json, OrderedJson({{"trace", path_},
                               {"rate_scale", 2.0},
                               {"trace_start", 1.0},
                               {"trace_seconds", nullptr}}));
}

TEST(Traffic, GivesItsRateToResultFiles) {
  OrderedJson json;
  add_traffic_json({.request_rate = 1, .peak_rate = 11}, json);
  EXPECT_EQ(json.at("request_rate"), 1);
  EXPECT_EQ(json.at("peak_request_rate"), 11);
  EXPECT_FALSE(json.contains("trace"));
}

// The options as a command line gives them.
TrafficOptions parse(std::vector<std::string> args) {
  CLI::App app;
  TrafficOptions options;
  add_traffic_options(app, options);
  app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  return options;
}

TEST(Traffic, OptionsOfATraceNeedOne) {
  EXPECT_EQ(parse({"--trace", "a.csv", "--trace-start", "5"}).trace_start, 5);
  EXPECT_THROW(parse({"--trace-start", "5"}), CLI::RequiresError);
  EXPECT_THROW(parse({"--trace", "a.csv", "--request-rate", "5"}), CLI::ExcludesError);
}

}  // namespace
}  // namespace halley::cli
