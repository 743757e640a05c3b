// A scatter plot as SVG text: labelled points with error bars, axes with ticks.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace halley::cli {

struct PlotPoint {
  std::string label;
  double x = 0, y = 0;
  double y_low = 0, y_high = 0;  // the error bar; both y where there is none
};

struct Plot {
  std::string title, x_label, y_label;
  std::vector<PlotPoint> points;
};

/// One `circle` a point. The y axis is logarithmic where all y are above zero and span more than a
/// factor of 20. Texts are escaped; points must be finite. Light and dark by the reader's setting.
std::string render_svg(const Plot& plot);

}  // namespace halley::cli
