// A histogram that many threads observe into without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace halley {

/// A Prometheus histogram: bucket i counts values up to bounds[i], the last one all larger values.
class Histogram {
 public:
  /// `bounds` ascend.
  explicit Histogram(std::span<const double> bounds);

  /// Thread-safe; costs two relaxed additions. Drops values that are not finite.
  void observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  /// Counts of the buckets (not cumulative), one more than bounds. The total is their sum, so a
  /// scrape is consistent while other threads observe.
  std::vector<uint64_t> counts() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

/// 1, 2, 5, 10, 20, 50, ... up to the largest that is at most `max`; just 1 if that is less.
std::vector<double> one_two_five_bounds(int64_t max);

}  // namespace halley
