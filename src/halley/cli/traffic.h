// When requests arrive and how long they are: drawn, or from a trace. For commands that send or
// simulate a load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "halley/json/json.h"

namespace halley::cli {

struct TrafficOptions {
  std::optional<int64_t> num_prompts = {};  // absent: 1000, or all of a trace
  double request_rate = std::numeric_limits<double>::infinity();
  double burstiness = 1;
  int64_t burst_size = 1;
  double peak_rate = 0, peak_period = 60;  // as ArrivalOptions' peak_rate and period
  std::string trace = {};                  // a file; replaces rate and lengths
  double trace_start = 0, trace_seconds = std::numeric_limits<double>::infinity();  // of its time
  double rate_scale = 1;
  int64_t trace_max_input = 0, trace_max_output = 0;  // 0: no limit
  int64_t input_len = 1024, output_len = 128;
  double range_ratio = 0;
  uint64_t seed = 0;
};

void add_traffic_options(CLI::App& app, TrafficOptions& options);

/// The options under the names of result files, but for `num_prompts` and `seed`.
void add_traffic_json(const TrafficOptions& options, OrderedJson& json);

struct Traffic {
  std::vector<double> arrivals;  // seconds, ascending
  std::vector<int64_t> input_lens, output_lens;
  /// Requests of a trace whose lengths were cut.
  size_t num_shortened = 0;
  /// The seconds in which requests arrive: those of the trace's window, else up to the last
  /// request. 0 if all arrive at once.
  int64_t num_seconds = 0;
};

/// Throws InputError if the trace cannot be read, if the window has no request, or if the peak is
/// below the rate. Says on stderr how many requests are shortened.
Traffic make_traffic(const TrafficOptions& options);

}  // namespace halley::cli
