// The plots of a load test.
#pragma once

#include <string>
#include <vector>

#include "halley/client/load/load_run.h"
#include "halley/client/load/load_series.h"
#include "halley/slo/slo.h"

namespace halley::cli {

/// SVG: the distributions of TTFT and TPOT of all successful requests.
std::string plot_distributions(const LoadResult& result, const std::string& title);

/// SVG: request rate, 90th percentiles of TTFT and TPOT with their objectives, and the precision of
/// tokens, where it is known, over the seconds of a run.
std::string plot_seconds(const std::vector<LoadSecond>& series, const Slo& slo,
                         const std::string& title);

}  // namespace halley::cli
