#include "halley/client/load/arrivals.h"

#include <cmath>
#include <numbers>

#include "halley/base/check.h"

namespace halley {
namespace {

// The time at which `count` requests are due: the inverse of the rate's integral.
double time_of(double count, const ArrivalOptions& options) {
  if (options.peak_rate <= 0) return count / options.request_rate;
  const double mean = (options.request_rate + options.peak_rate) / 2;
  const double swing = (options.peak_rate - options.request_rate) / 2;
  const double frequency = 2 * std::numbers::pi / options.period;
  const double num_periods = std::floor(count / (mean * options.period));
  const double rest = count - num_periods * mean * options.period;
  double low = 0, high = options.period;
  constexpr int kHalvings = 50;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    const double due = mean * middle - swing / frequency * std::sin(frequency * middle);
    (due < rest ? low : high) = middle;
  }
  return num_periods * options.period + high;
}

}  // namespace

std::vector<double> make_arrivals(const ArrivalOptions& options, std::mt19937_64& random) {
  HALLEY_CHECK(options.num_requests >= 0 && options.request_rate > 0 && options.burstiness > 0 &&
                   options.burst_size > 0,
               options.num_requests, options.request_rate, options.burstiness, options.burst_size);
  HALLEY_CHECK(options.peak_rate <= 0 || (std::isfinite(options.peak_rate) && options.period > 0 &&
                                          options.peak_rate >= options.request_rate),
               options.request_rate, options.peak_rate, options.period);
  const auto num_requests = static_cast<size_t>(options.num_requests);
  std::vector<double> times(num_requests, 0.0);
  if (std::isinf(options.request_rate) || num_requests == 0) return times;
  const auto burst_size = static_cast<size_t>(options.burst_size);
  // Only the proportions count here: the scale comes below.
  std::gamma_distribution<double> interval(std::isinf(options.burstiness) ? 1 : options.burstiness);
  double time = 0;
  for (size_t i = 0; i < num_requests; ++i) {
    if (i % burst_size == 0) time += std::isinf(options.burstiness) ? 1 : interval(random);
    times[i] = time;
  }
  const double scale = static_cast<double>(num_requests) / time;
  for (double& value : times) value = time_of(value * scale, options);
  return times;
}

}  // namespace halley
