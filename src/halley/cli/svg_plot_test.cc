#include "halley/cli/svg_plot.h"

#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/cli/svg_numbers.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

/// {x, y} of each point.
std::vector<std::vector<double>> circles_of(const Plot& plot) {
  return numbers_of(render_svg(plot), R"re(<circle [^>]*cx="([-\d.]+)" cy="([-\d.]+)")re");
}

/// {x, y} of each corner of line `index`, its sample in the legend left out.
std::vector<std::vector<double>> corners_of(const Plot& plot, size_t index) {
  const std::string svg = render_svg(plot);
  const std::regex regex("<polyline class=\"line line" + std::to_string(index) +
                         "\" points=\"([^\"]*)\"");
  std::smatch match;
  EXPECT_TRUE(std::regex_search(svg, match, regex));
  return numbers_of(match[1], R"re(([-\d.]+),([-\d.]+))re");
}

PlotPoint point(double x, double y) {
  return {.label = "a", .x = x, .y = y, .y_low = y, .y_high = y};
}

TEST(SvgPlot, PutsLargerValuesFurtherRightAndUp) {
  const auto at = circles_of({.points = {point(1, 5), point(2, 7), point(4, 6)}});
  ASSERT_THAT(at, SizeIs(3));
  EXPECT_LT(at[0][0], at[1][0]);
  EXPECT_LT(at[1][0], at[2][0]);
  EXPECT_GT(at[0][1], at[2][1]);
  EXPECT_GT(at[2][1], at[1][1]);
  // Linear: the distance from 2 to 4 is twice that from 1 to 2.
  EXPECT_NEAR(at[2][0] - at[1][0], 2 * (at[1][0] - at[0][0]), 3 * kPixel);
}

TEST(SvgPlot, HasALogarithmicAxisForPointsThatSpanALot) {
  const auto at = circles_of({.points = {point(1, 0.5), point(2, 5), point(3, 50)}});
  ASSERT_THAT(at, SizeIs(3));
  EXPECT_NEAR(at[0][1] - at[1][1], at[1][1] - at[2][1], 2 * kPixel);
  // A value that is not above zero has no logarithm.
  const auto linear = circles_of({.points = {point(1, 0), point(2, 5), point(3, 50)}});
  EXPECT_NEAR(9 * (linear[0][1] - linear[1][1]), linear[1][1] - linear[2][1], 10 * kPixel);
}

TEST(SvgPlot, HasALogarithmicAxisForLinesOverManyRows) {
  const Plot plot = {.points = {}, .lines = {{"a", {{1, 10}, {10, 20}, {100, 30}}}}};
  const auto at = corners_of(plot, 0);
  ASSERT_THAT(at, SizeIs(3));
  EXPECT_NEAR(at[1][0] - at[0][0], at[2][0] - at[1][0], 2 * kPixel);
  EXPECT_NEAR(at[0][1] - at[1][1], at[1][1] - at[2][1], 2 * kPixel);
}

TEST(SvgPlot, KeepsEverythingInsideThePicture) {
  for (const double size : {1e-9, 1.0, 12345.0, 1e12}) {
    std::vector<PlotPoint> points;
    for (int i = -3; i <= 3; ++i) points.push_back(point(i * size, i * i * size));
    for (const auto& at : circles_of({.points = points})) {
      EXPECT_GT(at[0], 0) << size;
      EXPECT_LT(at[0], 860) << size;
      EXPECT_GT(at[1], 0) << size;
      EXPECT_LT(at[1], 520) << size;
    }
  }
}

TEST(SvgPlot, CanShowOneValueAndNone) {
  const auto one = circles_of({.points = {point(3, 3)}});
  ASSERT_THAT(one, SizeIs(1));
  EXPECT_GT(one[0][0], 0);
  EXPECT_LT(one[0][1], 520);
  const std::string none = render_svg({});
  EXPECT_THAT(none, HasSubstr("</svg>"));
  EXPECT_THAT(none, Not(HasSubstr("nan")));
  EXPECT_THAT(none, Not(HasSubstr("inf")));
}

TEST(SvgPlot, ErrorBarsReachFromLowToHigh) {
  const Plot plot = {.points = {{.label = "a", .x = 1, .y = 5, .y_low = 4, .y_high = 8},
                                {.label = "b", .x = 2, .y = 0, .y_low = 0, .y_high = 0}}};
  const auto at = circles_of(plot);
  const auto bars = numbers_of(
      render_svg(plot),
      R"re(<line class="bar" x1="([-\d.]+)" y1="([-\d.]+)" x2="([-\d.]+)" y2="([-\d.]+)")re");
  ASSERT_THAT(bars, SizeIs(2));
  EXPECT_EQ(bars[0][0], at[0][0]);
  EXPECT_EQ(bars[0][2], at[0][0]);
  EXPECT_NEAR(bars[0][3] - at[0][1], 3 * (at[0][1] - bars[0][1]), 4 * kPixel);
  EXPECT_EQ(bars[1][1], bars[1][3]);
}

TEST(SvgPlot, LabelsDoNotCoverEachOther) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 4; ++i) points.push_back(point(1, 1 + 0.001 * i));
  points.push_back(point(2, 2));
  for (PlotPoint& each : points) each.label = "model";
  std::vector<std::pair<double, double>> spots;
  for (const auto& at : numbers_of(
           render_svg({.points = points}),
           R"re(<text class="ink" x="([-\d.]+)" y="([-\d.]+)" text-anchor="start">model<)re")) {
    spots.emplace_back(at[0], at[1]);
  }
  ASSERT_THAT(spots, SizeIs(5));
  for (size_t i = 0; i < spots.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool is_apart = std::abs(spots[i].first - spots[j].first) >= 5 * 6 ||
                            std::abs(spots[i].second - spots[j].second) >= 12;
      EXPECT_TRUE(is_apart) << i << " " << j;
    }
  }
}

TEST(SvgPlot, EscapesTexts) {
  const std::string svg = render_svg({.title = "a < b & \"c\"", .points = {point(1, 1)}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("a < b")));
}

TEST(SvgPlot, NamesEveryLine) {
  Plot plot;
  for (int i = 0; i < 6; ++i) {
    plot.lines.push_back({"line " + std::to_string(i), {{1, i}, {2, i + 1}}});
  }
  const std::string svg = render_svg(plot);
  for (int i = 0; i < 6; ++i) {
    EXPECT_THAT(svg, HasSubstr(">line " + std::to_string(i) + "<"));
    EXPECT_THAT(corners_of(plot, static_cast<size_t>(i)), SizeIs(2));
  }
}

}  // namespace
}  // namespace halley::cli
