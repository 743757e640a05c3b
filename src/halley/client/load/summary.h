// Mean, spread and percentiles of measured values.
#pragma once

#include <utility>
#include <vector>

namespace halley {

/// Linear interpolation between the two closest ranks, numpy.percentile's default; 0 if there
/// are no values. `percent` is from 0 to 100.
double percentile(std::vector<double> values, double percent);

struct Summary {
  double mean = 0, median = 0;
  double standard_deviation = 0;                       // of the population: numpy.std
  std::vector<std::pair<double, double>> percentiles;  // percent, value
};

/// All 0 if there are no values.
Summary summarize(const std::vector<double>& values, const std::vector<double>& percents);

}  // namespace halley
