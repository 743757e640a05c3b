#include "halley/cli/bench_serve_load.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::Le;
using testing::SizeIs;

const std::string kModel = HALLEY_SOURCE_DIR "/models/demo-21m";

Json body_of(const ServeLoad& load, size_t index) {
  return parse_json(load.make_body(index), "a body");
}

TEST(ServeLoad, DrawsLengthsAroundTheOnesAskedFor) {
  const ServeLoad even({.num_prompts = 20, .input_len = 100, .output_len = 8});
  EXPECT_THAT(even.input_lens(), AllOf(SizeIs(20), Each(100)));
  EXPECT_THAT(even.arrivals(), AllOf(SizeIs(20), Each(0)));
  EXPECT_EQ(body_of(even, 3).at("max_tokens"), 8);
  const ServeLoad uneven({.num_prompts = 200, .input_len = 100, .range_ratio = 0.5});
  EXPECT_THAT(uneven.input_lens(), Each(AllOf(Ge(50), Le(150))));
  EXPECT_NE(std::ranges::min(uneven.input_lens()), std::ranges::max(uneven.input_lens()));
  // Nobody asks for nothing.
  const ServeLoad short_ones({.num_prompts = 50, .input_len = 1, .range_ratio = 1});
  EXPECT_THAT(short_ones.input_lens(), Each(Ge(1)));
}

TEST(ServeLoad, ArrivesAtTheRate) {
  const ServeLoad load({.num_prompts = 100, .request_rate = 10});
  EXPECT_TRUE(std::ranges::is_sorted(load.arrivals()));
  EXPECT_NEAR(load.arrivals().back(), 10, 1e-6);
}

TEST(ServeLoad, LastsUntilItsLastRequest) {
  EXPECT_EQ(ServeLoad({.num_prompts = 3}).num_seconds(), 0);
  EXPECT_EQ(ServeLoad({.num_prompts = 25, .request_rate = 10}).num_seconds(), 3);
}

TEST(ServeLoad, HasThousandRequestsUnlessToldOtherwise) {
  EXPECT_THAT(ServeLoad({.input_len = 1}).arrivals(), SizeIs(1000));
}

TEST(ServeLoad, SwingsBetweenTwoRates) {
  const ServeLoadOptions options{.num_prompts = 60,
                                 .request_rate = 1,
                                 .burstiness = INFINITY,
                                 .peak_rate = 11,
                                 .peak_period = 10};
  const ServeLoad load(options);
  EXPECT_NEAR(load.arrivals().back(), 10, 1e-9);  // 60 are due in a period of 6 a second
  const auto in_middle =
      std::ranges::count_if(load.arrivals(), [](double time) { return time > 2.5 && time <= 7.5; });
  EXPECT_EQ(in_middle, 45);  // 30 -+ (15 + 5 * 10 / (2 pi)) are due then: the 8th to the 52nd
  ServeLoadOptions wrong = options;
  wrong.peak_rate = 0.5;
  EXPECT_THROW(ServeLoad{wrong}, InputError);
}

TEST(ServeLoad, AsksForTheUsageInEveryEvent) {
  const ServeLoad load({.num_prompts = 1, .has_continuous_usage = true});
  EXPECT_EQ(body_of(load, 0).at("stream_options").at("continuous_usage_stats"), true);
}

TEST(ServeLoad, BodiesDependOnTheSeedAndTheIndexAlone) {
  const ServeLoad load({.num_prompts = 10, .input_len = 40, .seed = 3});
  const ServeLoad same({.num_prompts = 5, .request_rate = 2, .input_len = 40, .seed = 3});
  const ServeLoad other({.num_prompts = 10, .input_len = 40, .seed = 4});
  EXPECT_EQ(load.make_body(4), same.make_body(4));
  EXPECT_EQ(load.make_body(4), load.make_body(4));
  EXPECT_NE(load.make_body(4), load.make_body(5));
  EXPECT_NE(load.make_body(4), other.make_body(4));
}

TEST(ServeLoad, AsksForWhatTheEndpointTakes) {
  const ServeLoad text({.model = "m", .num_prompts = 1, .input_len = 5, .temperature = 0.5});
  const Json completion = body_of(text, 0);
  EXPECT_TRUE(completion.at("prompt").is_string());
  EXPECT_EQ(std::ranges::count(completion.at("prompt").get<std::string>(), ' '), 5);
  EXPECT_EQ(completion.at("model"), "m");
  EXPECT_EQ(completion.at("temperature"), 0.5);
  EXPECT_EQ(completion.at("stream"), true);
  EXPECT_FALSE(completion.contains("ignore_eos"));
  const ServeLoad chat(
      {.endpoint = "/v1/chat/completions", .num_prompts = 1, .input_len = 5, .ignore_eos = true});
  const Json message = body_of(chat, 0);
  EXPECT_FALSE(message.contains("prompt"));
  EXPECT_EQ(message.at("messages").at(0).at("role"), "user");
  EXPECT_EQ(message.at("ignore_eos"), true);
}

TEST(ServeLoad, TakesPlainTokensWhereItHasATokenizer) {
  const ServeLoad load({.num_prompts = 1, .input_len = 300, .tokenizer = kModel});
  const auto tokenizer = load_tokenizer(kModel);
  const Json prompt = body_of(load, 0).at("prompt");
  ASSERT_EQ(prompt.size(), 300U);
  for (const Json& id : prompt) EXPECT_FALSE(tokenizer->is_special(id.get<int32_t>())) << id;
}

class ServeLoadTrace : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(path_) << "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                            "2023-11-16 18:00:00.0000000,10,5\n"
                            "2023-11-16 18:00:02.0000000,2000,7\n"
                            "2023-11-16 18:00:05.0000000,30,900\n";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_ = testing::TempDir() + "serve_load_trace_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
};

TEST_F(ServeLoadTrace, IsPlayedInItsOwnTime) {
  const ServeLoad load({.num_prompts = 10, .trace = path_});
  EXPECT_THAT(load.arrivals(), ElementsAre(0, 2, 5));
  EXPECT_THAT(load.input_lens(), ElementsAre(10, 2000, 30));
  EXPECT_EQ(load.num_shortened(), 0U);
  EXPECT_EQ(body_of(load, 2).at("max_tokens"), 900);
}

TEST_F(ServeLoadTrace, IsPlayedWholeUnlessTheNumberIsGiven) {
  EXPECT_THAT(ServeLoad({.trace = path_}).arrivals(), ElementsAre(0, 2, 5));
  EXPECT_EQ(ServeLoad({.trace = path_}).num_seconds(), 6);
}

TEST_F(ServeLoadTrace, MayBeAWindowOfItself) {
  const ServeLoad load({.trace = path_, .trace_start = 1, .trace_seconds = 4, .rate_scale = 2});
  EXPECT_THAT(load.arrivals(), ElementsAre(0.5));
  EXPECT_THAT(load.input_lens(), ElementsAre(2000));
  EXPECT_EQ(load.num_seconds(), 2);
  EXPECT_THAT(ServeLoad({.trace = path_, .trace_start = 2}).arrivals(), ElementsAre(0, 3));
  EXPECT_THROW(ServeLoad({.trace = path_, .trace_start = 6}), InputError);
}

TEST_F(ServeLoadTrace, MayBeFasterAndShorter) {
  const ServeLoad load({.num_prompts = 2,
                        .trace = path_,
                        .rate_scale = 4,
                        .trace_max_input = 100,
                        .trace_max_output = 6});
  EXPECT_THAT(load.arrivals(), ElementsAre(0, 0.5));
  EXPECT_THAT(load.input_lens(), ElementsAre(10, 100));
  EXPECT_EQ(load.num_shortened(), 1U);
  EXPECT_EQ(body_of(load, 0).at("max_tokens"), 5);
  EXPECT_EQ(body_of(load, 1).at("max_tokens"), 6);
}

TEST(ServeLoad, SaysWhichFileItCannotRead) {
  EXPECT_THROW(ServeLoad({.trace = "no/such/trace.csv"}), InputError);
  EXPECT_THROW(ServeLoad({.tokenizer = "no/such/folder"}), InputError);
}

}  // namespace
}  // namespace halley::cli
