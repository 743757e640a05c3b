// Renders a plot as SVG: labelled points with error bars, or lines; axes with ticks.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace halley::cli {

struct PlotPoint {
  std::string label;
  double x = 0, y = 0;
  double y_low = 0, y_high = 0;  // the error bar; both y if there is none
};

struct PlotLine {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x, y, in ascending order of x
};

struct Plot {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<PlotPoint> points = {};
  std::vector<PlotLine> lines = {};  // at most six: each has its own colour and pattern
};

/// Writes one `circle` a point, one `polyline` a line. The y axis of points is logarithmic if all y
/// are above zero and span more than a factor of 20; so is the x axis of lines. Texts are escaped;
/// points must be finite. Colours follow the reader's light or dark setting.
std::string render_svg(const Plot& plot);

}  // namespace halley::cli
