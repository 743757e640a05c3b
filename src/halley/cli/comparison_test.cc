#include "halley/cli/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley::cli {
namespace {

/// Parses as the command line does; throws the parser's exception.
WindowOptions parse_windows(const std::vector<std::string>& args) {
  CLI::App app;
  WindowOptions options;
  add_window_options(app, options);
  app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  return options;
}

TEST(WindowOptions, AreWhatIsAskedForWithinTheirLimits) {
  EXPECT_EQ(parse_windows({}).window, 1024);
  EXPECT_EQ(parse_windows({}).num_windows, 0);
  EXPECT_EQ(parse_windows({"--window", "2"}).window, 2);
  EXPECT_EQ(parse_windows({"--windows", "7"}).num_windows, 7);
  EXPECT_THROW(parse_windows({"--window", "1"}), CLI::ValidationError);
  EXPECT_THROW(parse_windows({"--windows", "-1"}), CLI::ValidationError);
}

TEST(Estimate, HasNullBoundsWithoutAnInterval) {
  const OrderedJson one = json_of(Estimate{.value = 0.25, .interval = {}});
  EXPECT_EQ(one.at("value"), 0.25);
  EXPECT_TRUE(one.at("low").is_null());
  EXPECT_TRUE(one.at("high").is_null());
  const OrderedJson many = json_of(Estimate{.value = 2, .interval = {{1.5, 3}}});
  EXPECT_EQ(many.at("low"), 1.5);
  EXPECT_EQ(many.at("high"), 3);
}

TEST(Estimate, IsShownWithItsIntervalWhereThereIsOne) {
  EXPECT_EQ(in_words({.value = 0.01234, .interval = {{0.0101, 0.0145}}}, 4),
            "0.0123 [0.0101, 0.0145]");
  EXPECT_EQ(in_words({.value = -2, .interval = {}}, 1), "-2.0");
}

TEST(Estimate, IsCutAtTheLengthOfALine) {
  const std::string text = in_words({.value = 1e200, .interval = {{1e200, 1e200}}}, 3);
  EXPECT_LE(text.size(), 128U);
  EXPECT_EQ(text.find('\0'), std::string::npos);
}

TEST(LogitComparison, HasAllMeasuresInItsJson) {
  const OrderedJson json = json_of(LogitComparison{.num_tokens = 12,
                                                   .num_windows = 3,
                                                   .reference_perplexity = 10,
                                                   .perplexity = 11,
                                                   .log_perplexity_increase = {0.1, {}},
                                                   .perplexity_ratio = {1.1, {}},
                                                   .kl_divergence = {0.02, {{0.01, 0.03}}},
                                                   .kl_p99 = 0.5,
                                                   .kl_max = 0.75,
                                                   .top1_agreement = {0.9, {}}});
  EXPECT_EQ(json.at("perplexity"), 11);
  EXPECT_EQ(json.at("reference_perplexity"), 10);
  EXPECT_EQ(json.at("num_tokens"), 12);
  EXPECT_EQ(json.at("num_windows"), 3);
  EXPECT_EQ(json.at("perplexity_ratio").at("value"), 1.1);
  EXPECT_EQ(json.at("kl_divergence").at("high"), 0.03);
  EXPECT_EQ(json.at("kl_p99"), 0.5);
  EXPECT_EQ(json.at("kl_max"), 0.75);
  EXPECT_EQ(json.at("top1_agreement").at("value"), 0.9);
}

}  // namespace
}  // namespace halley::cli
