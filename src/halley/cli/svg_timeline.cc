#include "halley/cli/svg_timeline.h"

#include <algorithm>
#include <numeric>

#include "halley/base/str.h"
#include "halley/svg/svg_drawing.h"

namespace halley::cli {
namespace {

constexpr double kWidth = 860;
constexpr double kLeft = 84, kRight = 836, kTop = 44;  // of the first panel
constexpr double kPanelHeight = 130, kPanelGap = 34;   // the gap has the texts of the ticks
constexpr double kBandHeight = 24, kBandGap = 24;      // the gap has the names
constexpr double kBottomHeight = 56;                   // the name of the x axis

double panel_top(size_t index) {
  return kTop + static_cast<double>(index) * (kPanelHeight + kPanelGap);
}

size_t num_seconds_of(const Timeline& timeline) {
  size_t num_seconds = timeline.band.size();
  for (const TimelinePanel& panel : timeline.panels) {
    num_seconds = std::max(num_seconds, panel.values.size());
  }
  return num_seconds;
}

SvgAxis x_axis(size_t num_seconds) {
  SvgAxis axis{.pixel_low = kLeft, .pixel_high = kRight};
  set_linear(axis, 0, static_cast<double>(std::max<size_t>(1, num_seconds)));
  return axis;
}

SvgAxis y_axis(const TimelinePanel& panel, double top) {
  SvgAxis axis{.pixel_low = top + kPanelHeight, .pixel_high = top};
  std::vector<double> values;
  for (const auto& value : panel.values) {
    if (value) values.push_back(*value);
  }
  if (panel.limit) values.push_back(*panel.limit);
  if (values.empty()) values = {1};
  const auto [low, high] = std::ranges::minmax(values);
  if (low > 0 && high > 20 * low) {
    set_log(axis, low, high);
  } else {
    set_linear(axis, std::min(0.0, low), high);
  }
  return axis;
}

std::string render_values(const TimelinePanel& panel, size_t index, const SvgAxis& x,
                          const SvgAxis& y) {
  std::string svg, points;
  const auto end_run = [&] {
    if (!points.empty()) svg += svg_polyline(index, points);
    points.clear();
  };
  for (size_t i = 0; i < panel.values.size(); ++i) {
    if (!panel.values[i]) {
      end_run();
      continue;
    }
    const auto second = static_cast<double>(i);
    const std::string height = svg_number(y.pixel(*panel.values[i]));
    points += str(svg_number(x.pixel(second)), ",", height, " ", svg_number(x.pixel(second + 1)),
                  ",", height, " ");
  }
  end_run();
  return svg;
}

std::string render_panel(const TimelinePanel& panel, size_t index, const SvgAxis& x) {
  const SvgAxis y = y_axis(panel, panel_top(index));
  std::string svg = svg_axes(x, y) + svg_y_label(y, panel.label);
  if (panel.limit) {
    const double height = y.pixel(*panel.limit);
    svg += svg_line("limit", kLeft, height, kRight, height) +
           svg_text(kRight - 4, height - 4, "end", panel.limit_label);
  }
  return svg + render_values(panel, index, x, y);
}

std::string area(size_t index, double left, double top, double width, double height) {
  return str("<rect class=\"area", index % kSvgColours, "\" x=\"", svg_number(left), "\" y=\"",
             svg_number(top), "\" width=\"", svg_number(width), "\" height=\"", svg_number(height),
             "\"/>\n");
}

std::string render_band(const Timeline& timeline, const SvgAxis& x, double top) {
  std::string svg;
  double left = kLeft;
  for (size_t i = 0; i < timeline.band_names.size(); ++i) {
    constexpr double kMark = 10;
    svg += area(i, left, top - kMark - 4, kMark, kMark) +
           svg_text(left + kMark + 5, top - 5, "start", timeline.band_names[i]);
    left += 2.5 * kMark + kSvgCharWidth * static_cast<double>(timeline.band_names[i].size());
  }
  for (size_t second = 0; second < timeline.band.size(); ++second) {
    const std::vector<double>& amounts = timeline.band[second];
    const double total = std::accumulate(amounts.begin(), amounts.end(), 0.0);
    const double begin = x.pixel(static_cast<double>(second));
    const double width = x.pixel(static_cast<double>(second) + 1) - begin;
    double bottom = top + kBandHeight;
    for (size_t i = 0; i < amounts.size(); ++i) {
      if (!(amounts[i] > 0)) continue;
      const double height = kBandHeight * amounts[i] / total;
      bottom -= height;
      svg += area(i, begin, bottom, width, height);
    }
  }
  return svg;
}

}  // namespace

std::string render_timeline(const Timeline& timeline) {
  const SvgAxis x = x_axis(num_seconds_of(timeline));
  std::string svg = svg_text(kLeft, 26, "start", timeline.title, " style=\"font-size: 15px\"");
  for (size_t i = 0; i < timeline.panels.size(); ++i) {
    svg += render_panel(timeline.panels[i], i, x);
  }
  double bottom = panel_top(timeline.panels.size()) - kPanelGap;
  if (!timeline.band_names.empty()) {
    const double top = bottom + kPanelGap + kBandGap;
    svg += render_band(timeline, x, top);
    bottom = top + kBandHeight;
  }
  svg += svg_text((kLeft + kRight) / 2, bottom + 40, "middle", "seconds");
  return svg_document(kWidth, bottom + kBottomHeight, timeline.title, svg);
}

}  // namespace halley::cli
