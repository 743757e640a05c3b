// How the report of a load is shown: for commands that send or simulate one.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "halley/cli/traffic.h"
#include "halley/client/load/load_report.h"

namespace halley::cli {

struct LoadOutputOptions {
  std::string slo = {};
  std::vector<std::string> metrics = {"ttft", "tpot", "itl"};
  std::vector<double> percents = {99};
  bool prints_seconds = false;
  std::string timeline_file = {};
};

/// --slo, --percentile-metrics, --metric-percentiles, --per-second and --timeline-svg.
void add_load_output_options(CLI::App& app, LoadOutputOptions& options);

/// Throws InputError where --slo is wrong.
LoadReportOptions report_options_of(const LoadOutputOptions& options,
                                    const TrafficOptions& traffic_options, const Traffic& traffic);

/// Prints the report, and its seconds where that is asked for.
void print_load(const LoadReport& report, const LoadReportOptions& report_options,
                const LoadOutputOptions& options);

}  // namespace halley::cli
