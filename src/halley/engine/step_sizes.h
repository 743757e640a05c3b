// Counts the tokens of the engine's steps, for a server's histogram.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace halley {

/// counts[i]: steps with at most kBounds[i] tokens and more than kBounds[i - 1]; the last: the
/// rest.
struct StepSizes {
  // vLLM's (v1/metrics/loggers.py, iteration_tokens_total).
  static constexpr std::array<int64_t, 13> kBounds = {1,   8,    16,   32,   64,   128,  256,
                                                      512, 1024, 2048, 4096, 8192, 16384};

  std::array<int64_t, kBounds.size() + 1> counts = {};
  int64_t num_tokens = 0;  // over all steps

  void add(int64_t num_rows) {
    const auto* bound = std::lower_bound(kBounds.begin(), kBounds.end(), num_rows);
    ++counts[static_cast<size_t>(bound - kBounds.begin())];
    num_tokens += num_rows;
  }
};

}  // namespace halley
