#include "halley/client/load/arrivals.h"

#include <cmath>

#include "halley/base/check.h"

namespace halley {

std::vector<double> make_arrivals(const ArrivalOptions& options, std::mt19937_64& random) {
  HALLEY_CHECK(options.num_requests >= 0 && options.request_rate > 0 && options.burstiness > 0 &&
                   options.burst_size > 0,
               options.num_requests, options.request_rate, options.burstiness, options.burst_size);
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
  const double end = static_cast<double>(num_requests) / options.request_rate;
  for (double& value : times) value *= end / time;
  return times;
}

}  // namespace halley
