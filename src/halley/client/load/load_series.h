// The seconds of a load test: the requests, tokens and latencies of each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/client/load/load_run.h"
#include "halley/client/load/usage.h"
#include "halley/slo/slo.h"

namespace halley {

/// Exact percentiles of the latencies of one second, in seconds; 0 if there is none.
struct SecondLatency {
  int64_t count = 0;
  double p50 = 0, p90 = 0, p99 = 0;
};

struct LoadSecond {
  int64_t requests = 0;  // that were sent
  int64_t failed = 0;    // of these, failed sooner or later; they count nowhere else
  int64_t running = 0;   // requests that ran at some time of the second
  int64_t tokens = 0;
  PrecisionTokens precision_tokens = {};  // as far as the server tells
  SecondLatency ttft = {}, tpot = {};
};

/// Second i lasts from i to i + 1 seconds after the run's beginning; the last one has the last
/// token. A TPOT is the interval between two events of a stream, divided by the tokens of the
/// second of them (one, unless the server counts them in every event). TTFTs and intervals count in
/// the second in which they end, and in every second that they cover from its beginning to its end:
/// a stall counts as long as it lasts. Empty for a run of more than 1,000,000 seconds.
std::vector<LoadSecond> make_load_series(const std::vector<LoadOutcome>& outcomes);

/// The names of all precisions in a series, sorted.
std::vector<std::string> precisions_of(const std::vector<LoadSecond>& series);

/// Whether the 90th percentile of a second is above the objective.
struct SecondViolation {
  bool ttft = false, tpot = false;
};
SecondViolation violation_of(const LoadSecond& second, const Slo& slo);

}  // namespace halley
