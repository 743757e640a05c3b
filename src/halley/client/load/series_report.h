// The seconds of a load test as a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "halley/client/load/load_series.h"
#include "halley/json/json.h"
#include "halley/slo/slo.h"

namespace halley {

/// A row a second, latencies in milliseconds; "-" where there is none. The last column names the
/// objectives that the second violates.
std::string format_load_series(const std::vector<LoadSecond>& series, const Slo& slo);

/// An object a second: "requests", "failed", "running", "output_tokens", "ttft_ms" and "tpot_ms"
/// (objects of "count", "p50", "p90", "p99", or null), "output_tokens_by_precision" if it is known,
/// and "violations", a list of names of objectives.
OrderedJson load_series_json(const std::vector<LoadSecond>& series, const Slo& slo);

}  // namespace halley
