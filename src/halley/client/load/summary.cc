#include "halley/client/load/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "halley/base/check.h"

namespace halley {
namespace {

double sorted_percentile(const std::vector<double>& sorted, double percent) {
  HALLEY_CHECK(percent >= 0 && percent <= 100, percent);
  if (sorted.empty()) return 0;
  const double position = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  return sorted_percentile(values, percent);
}

Summary summarize(const std::vector<double>& values, const std::vector<double>& percents) {
  Summary summary;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  if (!values.empty()) {
    const auto count = static_cast<double>(values.size());
    summary.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
    double squares = 0;
    for (const double value : sorted) squares += (value - summary.mean) * (value - summary.mean);
    summary.standard_deviation = std::sqrt(squares / count);
  }
  summary.median = sorted_percentile(sorted, 50);
  for (const double percent : percents) {
    summary.percentiles.emplace_back(percent, sorted_percentile(sorted, percent));
  }
  return summary;
}

}  // namespace halley
