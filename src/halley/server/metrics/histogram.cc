#include "halley/server/metrics/histogram.h"

#include <algorithm>
#include <cmath>

#include "halley/base/check.h"

namespace halley {

Histogram::Histogram(std::span<const double> bounds)
    : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {
  HALLEY_CHECK(std::is_sorted(bounds_.begin(), bounds_.end()), bounds_);
}

void Histogram::observe(double value) {
  if (!std::isfinite(value)) return;
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<uint64_t> Histogram::counts() const {
  std::vector<uint64_t> counts;
  for (const auto& count : counts_) counts.push_back(count.load(std::memory_order_relaxed));
  return counts;
}

std::vector<double> one_two_five_bounds(int64_t max) {
  std::vector<double> bounds;
  const auto limit = static_cast<double>(std::max<int64_t>(max, 1));
  for (double power = 1; power <= limit; power *= 10) {
    for (const double factor : {1, 2, 5}) {
      if (factor * power <= limit) bounds.push_back(factor * power);
    }
  }
  return bounds;
}

}  // namespace halley
