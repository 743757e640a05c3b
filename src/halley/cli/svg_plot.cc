#include "halley/cli/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "halley/base/str.h"

namespace halley::cli {
namespace {

constexpr double kWidth = 860, kHeight = 520;
constexpr double kLeft = 84, kRight = 836, kTop = 44, kBottom = 460;  // edges of the plot's area
constexpr double kRadius = 4;
constexpr double kCharWidth = 6.2, kLineHeight = 13;  // approximate size of labels at 11 px

constexpr const char* kStyle = R"(<style>
  .paper { fill: #ffffff } .ink { fill: #24292f } .grid { stroke: #d0d7de; stroke-width: 1 }
  .axis { stroke: #57606a; stroke-width: 1 } .bar { stroke: #0969da; stroke-width: 1.2 }
  .point { fill: #0969da } text { font: 11px sans-serif }
  .line { fill: none; stroke-width: 2 } .line0 { stroke: #0969da }
  .line1 { stroke: #bc4c00; stroke-dasharray: 6 3 }
  .line2 { stroke: #1a7f37; stroke-dasharray: 2 3 }
  .line3 { stroke: #8250df; stroke-dasharray: 10 3 }
  .line4 { stroke: #bf3989; stroke-dasharray: 8 3 2 3 }
  .line5 { stroke: #57606a; stroke-dasharray: 4 2 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .grid { stroke: #30363d }
    .axis { stroke: #8b949e } .bar { stroke: #58a6ff } .point { fill: #58a6ff }
    .line0 { stroke: #58a6ff } .line1 { stroke: #f0883e } .line2 { stroke: #3fb950 }
    .line3 { stroke: #bc8cff } .line4 { stroke: #f778ba } .line5 { stroke: #8b949e }
  }
</style>
)";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return result;
}

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string tick_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.5g", std::abs(value) < 1e-12 ? 0.0 : value);
  return text.data();
}

// One axis: maps values to pixels.
struct Axis {
  double low = 0, high = 1;  // in values
  double pixel_low = 0, pixel_high = 1;
  bool is_log = false;
  std::vector<double> ticks;

  double pixel(double value) const {
    const auto map = [&](double v) { return is_log ? std::log10(v) : v; };
    const double share = (map(std::clamp(value, low, high)) - map(low)) / (map(high) - map(low));
    return pixel_low + share * (pixel_high - pixel_low);
  }
};

// Ticks at 1, 2 or 5 times a power of ten, about six of them.
void set_linear(Axis& axis, double low, double high) {
  if (high - low < 1e-9 * std::max(1.0, std::abs(high))) {
    low -= 0.5;
    high += 0.5;
  }
  const double rough = (high - low) / 6;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough > 5 * power   ? 10
                               : rough > 2 * power ? 5
                               : rough > power     ? 2
                                                   : 1);
  const double first = std::floor(low / step), last = std::ceil(high / step);
  axis.low = first * step;
  axis.high = last * step;
  for (double i = first; i <= last; ++i) axis.ticks.push_back(i * step);
}

void set_log(Axis& axis, double low, double high) {
  const double first = std::floor(std::log10(low)), last = std::ceil(std::log10(high));
  axis.is_log = true;
  axis.low = std::pow(10, first);
  axis.high = std::pow(10, last);
  for (double i = first; i <= last; ++i) axis.ticks.push_back(std::pow(10, i));
}

Axis x_axis(const Plot& plot) {
  Axis axis;
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

Axis y_axis(const Plot& plot) {
  Axis axis;
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

std::string line(const char* kind, double x0, double y0, double x1, double y1) {
  return str("<line class=\"", kind, "\" x1=\"", number(x0), "\" y1=\"", number(y0), "\" x2=\"",
             number(x1), "\" y2=\"", number(y1), "\"/>\n");
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const std::string& more = {}) {
  return str("<text class=\"ink\" x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"",
             anchor, "\"", more, ">", escaped(text), "</text>\n");
}

std::string render_axes(const Plot& plot, const Axis& x, const Axis& y) {
  std::string svg;
  for (const double tick : x.ticks) {
    svg += line("grid", x.pixel(tick), kTop, x.pixel(tick), kBottom);
    svg += text_at(x.pixel(tick), kBottom + 16, "middle", tick_text(tick));
  }
  for (const double tick : y.ticks) {
    svg += line("grid", kLeft, y.pixel(tick), kRight, y.pixel(tick));
    svg += text_at(kLeft - 6, y.pixel(tick) + 4, "end", tick_text(tick));
  }
  svg += line("axis", kLeft, kBottom, kRight, kBottom) + line("axis", kLeft, kTop, kLeft, kBottom);
  svg += text_at((kLeft + kRight) / 2, kBottom + 40, "middle", plot.x_label);
  const double middle = (kTop + kBottom) / 2;
  svg += text_at(18, middle, "middle", plot.y_label,
                 str(" transform=\"rotate(-90 18 ", number(middle), ")\""));
  return svg;
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
        const double middle = y + direction * distance * kLineHeight;
        box = {left, middle - kLineHeight / 2, left + width, middle + kLineHeight / 2};
        const bool is_inside =
            box.left > kLeft && box.right < kWidth && box.top > kTop - 8 && box.bottom < kBottom;
        const auto hits = [&](const Box& other) { return overlaps(box, other); };
        if (is_inside && std::none_of(taken.begin(), taken.end(), hits)) return box;
      }
    }
  }
  return box;
}

std::string render_points(const Plot& plot, const Axis& x, const Axis& y) {
  std::vector<Box> taken;
  for (const PlotPoint& point : plot.points) {
    const double center_x = x.pixel(point.x), center_y = y.pixel(point.y);
    taken.push_back(
        {center_x - kRadius, center_y - kRadius, center_x + kRadius, center_y + kRadius});
  }
  std::string svg;
  for (const PlotPoint& point : plot.points) {
    const double center_x = x.pixel(point.x), center_y = y.pixel(point.y);
    svg += line("bar", center_x, y.pixel(point.y_low), center_x, y.pixel(point.y_high));
    svg += str("<circle class=\"point\" cx=\"", number(center_x), "\" cy=\"", number(center_y),
               "\" r=\"", number(kRadius), "\"><title>", escaped(point.label), ": ",
               tick_text(point.x), ", ", tick_text(point.y), "</title></circle>\n");
    const double width = kCharWidth * static_cast<double>(point.label.size());
    taken.push_back(place_label(center_x, center_y, width, taken));
    svg += text_at(taken.back().left, taken.back().bottom - 3, "start", point.label);
  }
  return svg;
}

std::string polyline(size_t index, const std::string& points) {
  return str("<polyline class=\"line line", index, "\" points=\"", points, "\"/>\n");
}

// Draws the lines and their legend, in a corner that the rising lines of distributions leave free.
std::string render_lines(const Plot& plot, const Axis& x, const Axis& y) {
  std::string svg;
  size_t longest = 0;
  for (const PlotLine& each : plot.lines) longest = std::max(longest, each.label.size());
  const double left = kRight - 46 - kCharWidth * static_cast<double>(longest);
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    std::string points;
    for (const auto& [value_x, value_y] : plot.lines[i].points) {
      points += str(number(x.pixel(value_x)), ",", number(y.pixel(value_y)), " ");
    }
    svg += polyline(i, points);
    // The first one at the top.
    const auto below = static_cast<double>(plot.lines.size() - 1 - i);
    const double height = kBottom - 20 - kLineHeight * below * 1.5;
    svg += polyline(i, str(left, ",", height, " ", left + 30, ",", height));
    svg += text_at(left + 36, height + 4, "start", plot.lines[i].label);
  }
  return svg;
}

}  // namespace

std::string render_svg(const Plot& plot) {
  const Axis x = x_axis(plot), y = y_axis(plot);
  return str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ", kHeight,
             "\" role=\"img\">\n<title>", escaped(plot.title), "</title>\n", kStyle,
             "<rect class=\"paper\" width=\"", kWidth, "\" height=\"", kHeight, "\"/>\n",
             text_at(kLeft, 26, "start", plot.title, " style=\"font-size: 15px\""),
             render_axes(plot, x, y), render_points(plot, x, y), render_lines(plot, x, y),
             "</svg>\n");
}

}  // namespace halley::cli
