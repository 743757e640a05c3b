// The send times of a load test's requests.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace halley {

struct ArrivalOptions {
  int64_t num_requests = 0;
  double request_rate = std::numeric_limits<double>::infinity();  // per second
  double burstiness =
      1;  // shape of the gamma distribution of intervals; 1: Poisson; infinity: even
  int64_t burst_size = 1;  // requests that are sent together
  /// If above 0, the rate swings from `request_rate` (finite) up to this and back in every `period`
  /// seconds.
  double peak_rate = 0;
  double period = 60;
};

/// Seconds from the start, ascending. Intervals are drawn from the gamma distribution with the mean
/// 1 / rate and the given shape, then scaled so that the last request is sent at
/// num_requests / rate: the offered load is the same for every seed. (Names and behaviour of vLLM's
/// `bench serve`.) With bursts, intervals are those between bursts. An infinite rate sends all at
/// 0.
///
/// With a peak, the rate at the time t is low + (peak - low) * (1 - cos(2 pi t / period)) / 2; its
/// mean over a period is (low + peak) / 2. Arrivals of the rate 1 are moved to the times at which
/// as many are due: a Poisson process stays one, and num_requests are due at the last one.
std::vector<double> make_arrivals(const ArrivalOptions& options, std::mt19937_64& random);

}  // namespace halley
