#include "halley/cli/svg_plot.h"

#include <algorithm>

#include "halley/base/str.h"
#include "halley/svg/svg_drawing.h"

namespace halley::cli {
namespace {

constexpr double kWidth = 860, kHeight = 520;
constexpr double kLeft = 84, kRight = 836, kTop = 44, kBottom = 460;  // edges of the plot's area
constexpr double kRadius = 4;

SvgAxis x_axis(const Plot& plot) {
  SvgAxis axis;
  axis.pixel_low = kLeft;
  axis.pixel_high = kRight;
  std::vector<double> values;
  for (const PlotPoint& point : plot.points) values.push_back(point.x);
  for (const PlotLine& line : plot.lines) {
    for (const auto& [x, y] : line.points) values.push_back(x);
  }
  if (values.empty()) values = {0, 1};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (plot.points.empty() && *low > 0 && *high > 20 * *low) {
    set_log(axis, *low, *high);
  } else {
    set_linear(axis, *low, *high);
  }
  return axis;
}

SvgAxis y_axis(const Plot& plot) {
  SvgAxis axis;
  axis.pixel_low = kBottom;
  axis.pixel_high = kTop;
  double low = 0, high = 0, value_low = 0, value_high = 0;
  for (const PlotPoint& point : plot.points) {
    const bool is_first = &point == plot.points.data();
    low = std::min(low, point.y_low);
    high = std::max(high, point.y_high);
    value_low = is_first ? point.y : std::min(value_low, point.y);
    value_high = is_first ? point.y : std::max(value_high, point.y);
  }
  for (const PlotLine& line : plot.lines) {
    for (const auto& [x, y] : line.points) {
      low = std::min(low, y);
      high = std::max(high, y);
    }
  }
  if (value_low > 0 && value_high > 20 * value_low) {
    set_log(axis, value_low, value_high);
  } else {
    set_linear(axis, low, high);
  }
  return axis;
}

struct Box {
  double left, top, right, bottom;
};

bool overlaps(const Box& a, const Box& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// Places each label: at the first position around its point that is free and inside the area, or
// at the last one if none is.
Box place_label(double x, double y, double width, const std::vector<Box>& taken) {
  constexpr double kGap = kRadius + 3;
  Box box{};
  for (int distance = 0; distance < 6; ++distance) {
    for (const int side : {1, -1}) {
      for (const int direction : {-1, 1}) {
        const double left = side > 0 ? x + kGap : x - kGap - width;
        const double middle = y + direction * distance * kSvgLineHeight;
        box = {left, middle - kSvgLineHeight / 2, left + width, middle + kSvgLineHeight / 2};
        const bool is_inside =
            box.left > kLeft && box.right < kWidth && box.top > kTop - 8 && box.bottom < kBottom;
        const auto hits = [&](const Box& other) { return overlaps(box, other); };
        if (is_inside && std::none_of(taken.begin(), taken.end(), hits)) return box;
      }
    }
  }
  return box;
}

std::string render_points(const Plot& plot, const SvgAxis& x, const SvgAxis& y) {
  std::vector<Box> taken;
  for (const PlotPoint& point : plot.points) {
    const double center_x = x.pixel(point.x), center_y = y.pixel(point.y);
    taken.push_back(
        {center_x - kRadius, center_y - kRadius, center_x + kRadius, center_y + kRadius});
  }
  std::string svg;
  for (const PlotPoint& point : plot.points) {
    const double center_x = x.pixel(point.x), center_y = y.pixel(point.y);
    svg += svg_line("bar", center_x, y.pixel(point.y_low), center_x, y.pixel(point.y_high));
    svg +=
        str("<circle class=\"point\" cx=\"", svg_number(center_x), "\" cy=\"", svg_number(center_y),
            "\" r=\"", svg_number(kRadius), "\"><title>", svg_escaped(point.label), ": ",
            svg_tick(point.x), ", ", svg_tick(point.y), "</title></circle>\n");
    const double width = kSvgCharWidth * static_cast<double>(point.label.size());
    taken.push_back(place_label(center_x, center_y, width, taken));
    svg += svg_text(taken.back().left, taken.back().bottom - 3, "start", point.label);
  }
  return svg;
}

// Draws the lines and their legend, in a corner that the rising lines of distributions leave free.
std::string render_lines(const Plot& plot, const SvgAxis& x, const SvgAxis& y) {
  std::string svg;
  size_t longest = 0;
  for (const PlotLine& each : plot.lines) longest = std::max(longest, each.label.size());
  const double left = kRight - 46 - kSvgCharWidth * static_cast<double>(longest);
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    std::string points;
    for (const auto& [value_x, value_y] : plot.lines[i].points) {
      points += str(svg_number(x.pixel(value_x)), ",", svg_number(y.pixel(value_y)), " ");
    }
    svg += svg_polyline(i, points);
    // The first one at the top.
    const auto below = static_cast<double>(plot.lines.size() - 1 - i);
    const double height = kBottom - 20 - kSvgLineHeight * below * 1.5;
    svg += svg_polyline(i, str(left, ",", height, " ", left + 30, ",", height));
    svg += svg_text(left + 36, height + 4, "start", plot.lines[i].label);
  }
  return svg;
}

}  // namespace

std::string render_svg(const Plot& plot) {
  const SvgAxis x = x_axis(plot), y = y_axis(plot);
  return svg_document(kWidth, kHeight, plot.title,
                      svg_text(kLeft, 26, "start", plot.title, " style=\"font-size: 15px\"") +
                          svg_axes(x, y) + svg_x_label(x, y, plot.x_label) +
                          svg_y_label(y, plot.y_label) + render_points(plot, x, y) +
                          render_lines(plot, x, y));
}

}  // namespace halley::cli
