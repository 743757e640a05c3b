#include "halley/svg/svg_drawing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "halley/base/str.h"

namespace halley {
namespace {

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
  .area0 { fill: #54aeff } .area1 { fill: #fb8f44 } .area2 { fill: #4ac26b }
  .area3 { fill: #c297ff } .area4 { fill: #ff80c8 } .area5 { fill: #8c959f }
  .limit { stroke: #cf222e; stroke-width: 1.2; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .grid { stroke: #30363d }
    .axis { stroke: #8b949e } .bar { stroke: #58a6ff } .point { fill: #58a6ff }
    .line0 { stroke: #58a6ff } .line1 { stroke: #f0883e } .line2 { stroke: #3fb950 }
    .area0 { fill: #1f6feb } .area1 { fill: #bd561d } .area2 { fill: #238636 }
    .area3 { fill: #8957e5 } .area4 { fill: #bf4b8a } .area5 { fill: #6e7681 }
    .limit { stroke: #ff7b72 }
    .line3 { stroke: #bc8cff } .line4 { stroke: #f778ba } .line5 { stroke: #8b949e }
  }
</style>
)";

}  // namespace

std::string svg_document(double width, double height, const std::string& title,
                         const std::string& content) {
  return str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ", height,
             "\" role=\"img\">\n<title>", svg_escaped(title), "</title>\n", kStyle,
             "<rect class=\"paper\" width=\"", width, "\" height=\"", height, "\"/>\n", content,
             "</svg>\n");
}

std::string svg_escaped(const std::string& text) {
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

std::string svg_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string svg_tick(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.5g", std::abs(value) < 1e-12 ? 0.0 : value);
  return text.data();
}

std::string svg_line(const char* kind, double x0, double y0, double x1, double y1) {
  return str("<line class=\"", kind, "\" x1=\"", svg_number(x0), "\" y1=\"", svg_number(y0),
             "\" x2=\"", svg_number(x1), "\" y2=\"", svg_number(y1), "\"/>\n");
}

std::string svg_polyline(size_t index, const std::string& points) {
  return str("<polyline class=\"line line", index % kSvgColours, "\" points=\"", points, "\"/>\n");
}

std::string svg_text(double x, double y, const char* anchor, const std::string& text,
                     const std::string& more) {
  return str("<text class=\"ink\" x=\"", svg_number(x), "\" y=\"", svg_number(y),
             "\" text-anchor=\"", anchor, "\"", more, ">", svg_escaped(text), "</text>\n");
}

double SvgAxis::pixel(double value) const {
  const auto map = [&](double v) { return is_log ? std::log10(v) : v; };
  const double share = (map(std::clamp(value, low, high)) - map(low)) / (map(high) - map(low));
  return pixel_low + share * (pixel_high - pixel_low);
}

void set_linear(SvgAxis& axis, double low, double high) {
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

void set_log(SvgAxis& axis, double low, double high) {
  const double first = std::floor(std::log10(low)), last = std::ceil(std::log10(high));
  axis.is_log = true;
  axis.low = std::pow(10, first);
  axis.high = std::pow(10, last);
  for (double i = first; i <= last; ++i) axis.ticks.push_back(std::pow(10, i));
}

std::string svg_axes(const SvgAxis& x, const SvgAxis& y) {
  const double left = x.pixel_low, right = x.pixel_high;
  const double top = y.pixel_high, bottom = y.pixel_low;
  std::string svg;
  for (const double tick : x.ticks) {
    svg += svg_line("grid", x.pixel(tick), top, x.pixel(tick), bottom);
    svg += svg_text(x.pixel(tick), bottom + 16, "middle", svg_tick(tick));
  }
  for (const double tick : y.ticks) {
    svg += svg_line("grid", left, y.pixel(tick), right, y.pixel(tick));
    svg += svg_text(left - 6, y.pixel(tick) + 4, "end", svg_tick(tick));
  }
  return svg + svg_line("axis", left, bottom, right, bottom) +
         svg_line("axis", left, top, left, bottom);
}

std::string svg_x_label(const SvgAxis& x, const SvgAxis& y, const std::string& text) {
  return svg_text((x.pixel_low + x.pixel_high) / 2, y.pixel_low + 40, "middle", text);
}

std::string svg_y_label(const SvgAxis& y, const std::string& text) {
  const double middle = (y.pixel_low + y.pixel_high) / 2;
  return svg_text(18, middle, "middle", text,
                  str(" transform=\"rotate(-90 18 ", svg_number(middle), ")\""));
}

}  // namespace halley
