#include "halley/cli/svg_timeline.h"

#include <optional>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/cli/svg_numbers.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

/// {x, y} of the corners of each polyline of panel `index`.
std::vector<std::vector<std::vector<double>>> runs_of(const Timeline& timeline, size_t index) {
  const std::string svg = render_timeline(timeline);
  const std::regex regex("<polyline class=\"line line" + std::to_string(index) +
                         "\" points=\"([^\"]*)\"");
  std::vector<std::vector<std::vector<double>>> runs;
  for (std::sregex_iterator it(svg.begin(), svg.end(), regex), end; it != end; ++it) {
    runs.push_back(numbers_of((*it)[1], R"re(([-\d.]+),([-\d.]+))re"));
  }
  return runs;
}

TEST(SvgTimeline, DrawsAValueForItsWholeSecond) {
  const auto runs = runs_of({.panels = {{.values = {1, 3, 2}}}}, 0);
  ASSERT_THAT(runs, SizeIs(1));
  ASSERT_THAT(runs[0], SizeIs(6));
  EXPECT_EQ(runs[0][0][1], runs[0][1][1]);
  EXPECT_EQ(runs[0][1][0], runs[0][2][0]);
  EXPECT_GT(runs[0][0][1], runs[0][4][1]);  // larger values are further up
  EXPECT_GT(runs[0][4][1], runs[0][2][1]);
  EXPECT_NEAR(runs[0][5][0] - runs[0][0][0], 3 * (runs[0][1][0] - runs[0][0][0]), 3 * kPixel);
}

TEST(SvgTimeline, ASecondWithoutValueIsAGap) {
  const auto runs = runs_of({.panels = {{.values = {1, std::nullopt, std::nullopt, 2, 1}}}}, 0);
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_THAT(runs[0], SizeIs(2));
  EXPECT_THAT(runs[1], SizeIs(4));
  EXPECT_THAT(runs_of({.panels = {{.values = {std::nullopt}}}}, 0), IsEmpty());
  EXPECT_THAT(runs_of({}, 0), IsEmpty());
}

TEST(SvgTimeline, PanelsShareTheirSeconds) {
  const Timeline timeline{.panels = {{.values = {1, 2}}, {.values = {5, 5}}}};
  const auto first = runs_of(timeline, 0), second = runs_of(timeline, 1);
  ASSERT_THAT(first, SizeIs(1));
  ASSERT_THAT(second, SizeIs(1));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(first[0][i][0], second[0][i][0]);
    EXPECT_LT(first[0][i][1], second[0][i][1]);
  }
}

TEST(SvgTimeline, ALimitIsInsideEvenIfAllValuesAreBelowIt) {
  const Timeline timeline{
      .panels = {{.values = {10, 20}, .limit = 33.3, .limit_label = "SLO 33.3 ms"}}};
  const std::string svg = render_timeline(timeline);
  EXPECT_THAT(svg, HasSubstr(">SLO 33.3 ms<"));
  const auto limits = numbers_of(svg, R"re(class="limit" x1="[\d.]+" y1="([\d.]+)")re");
  ASSERT_THAT(limits, SizeIs(1));
  const auto runs = runs_of(timeline, 0);
  const double ten = runs[0][0][1], twenty = runs[0][2][1];
  EXPECT_NEAR(twenty - limits[0][0], 1.33 * (ten - twenty), 3 * kPixel);
  EXPECT_THAT(render_timeline({.panels = {{.values = {1}}}}), Not(HasSubstr("class=\"limit\"")));
}

TEST(SvgTimeline, ValuesThatSpanALotHaveALogarithmicAxis) {
  const auto runs = runs_of({.panels = {{.values = {1, 10, 100}}}}, 0);
  ASSERT_THAT(runs, SizeIs(1));
  EXPECT_NEAR(runs[0][0][1] - runs[0][2][1], runs[0][2][1] - runs[0][4][1], 2 * kPixel);
}

TEST(SvgTimeline, TheBandHasTheSharesOfEachSecond) {
  const Timeline timeline{.band_names = {"full", "low"}, .band = {{3, 0}, {}, {1, 3}}};
  const std::string svg = render_timeline(timeline);
  EXPECT_THAT(svg, HasSubstr(">full<"));
  EXPECT_THAT(svg, HasSubstr(">low<"));
  const auto areas = numbers_of(
      svg, R"re(class="area(\d)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)")re");
  ASSERT_THAT(areas, SizeIs(5));  // two marks, then second 0, then both of second 2
  const auto& whole = areas[2];
  const auto& full = areas[3];
  const auto& low = areas[4];
  EXPECT_EQ(whole[0], 0);
  EXPECT_EQ(full[0], 0);
  EXPECT_EQ(low[0], 1);
  EXPECT_NEAR(full[4], whole[4] / 4, kPixel);
  EXPECT_NEAR(low[4], whole[4] * 3 / 4, kPixel);
  EXPECT_NEAR(low[2] + low[4], full[2], kPixel);  // on top of each other
  EXPECT_NEAR(full[1] - whole[1], 2 * whole[3], 2 * kPixel);
}

TEST(SvgTimeline, EscapesTexts) {
  const std::string svg =
      render_timeline({.title = "a < b", .panels = {{.label = "<x>"}}, .band_names = {"<y>"}});
  EXPECT_THAT(svg, Not(HasSubstr("<x>")));
  EXPECT_THAT(svg, Not(HasSubstr("<y>")));
  EXPECT_THAT(svg, Not(HasSubstr("a < b")));
}

}  // namespace
}  // namespace halley::cli
