// Renders what happened in each second of a run as SVG: panels of values above each other, and a
// band of shares below them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace halley::cli {

struct TimelinePanel {
  std::string label = {};
  std::vector<std::optional<double>> values = {};  // of each second; absent: a gap
  std::optional<double> limit = {};                // a dashed line
  std::string limit_label = {};
};

struct Timeline {
  std::string title = {};
  std::vector<TimelinePanel> panels = {};
  std::vector<std::string> band_names = {};  // at most six: each has its own colour
  /// Amounts of each name, of each second: their shares fill the band. Seconds without amounts are
  /// gaps. There is no band without names.
  std::vector<std::vector<double>> band = {};
};

/// Writes one `polyline` for each run of values without a gap, one `rect` for each share. Value i
/// is drawn from second i to i + 1. A y axis is logarithmic if its values are above zero and span
/// more than a factor of 20, else it begins at zero. Values must be finite.
std::string render_timeline(const Timeline& timeline);

}  // namespace halley::cli
