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

}  // namespace
}  // namespace halley::cli
