// The results of a load test, with the names and the layout of vLLM's `bench serve`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halley/client/load/load_run.h"
#include "halley/client/load/load_series.h"
#include "halley/client/load/summary.h"
#include "halley/json/json.h"
#include "halley/slo/slo.h"

namespace halley {

struct LoadReportOptions {
  std::vector<double> percents = {99};
  std::vector<std::string> metrics = {"ttft", "tpot", "itl"};  // to be printed; also "e2el"
  Slo slo = {};
  std::optional<double> request_rate = {};
  int64_t num_load_seconds = 0;  // violations are counted in these first seconds; 0: in all
  int64_t max_concurrency = 0;
  std::vector<int64_t> input_lens =
      {};  // tokens of each prompt, if the server does not report them
};

/// The seconds that violate an objective: the 90th percentile of one is above it.
struct ViolatingSeconds {
  std::optional<int64_t> ttft = {}, tpot = {};  // absent without that objective
  int64_t num_seconds = 0;                      // that were looked at
};

/// Latencies in milliseconds. Failed requests count only in `failed`.
struct LoadReport {
  int64_t completed = 0, failed = 0;
  double duration = 0;  // seconds
  int64_t total_input = 0, total_output = 0;
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  // per second
  std::optional<double> request_goodput = {};  // good requests per second; with an Slo
  double peak_output_throughput = 0;           // most tokens in a second of the run
  int64_t peak_concurrent_requests = 0;        // most requests that ran in one second
  Summary ttft = {};                           // time to first token
  Summary tpot = {};  // (latency - TTFT) / (output tokens - 1), of requests with two tokens or more
  Summary itl = {};   // between events with content
  Summary e2el = {};  // from the start to the last token
  bool has_usage = true;                  // the server counted all output tokens
  double tokens_per_event = 0;            // of events with content
  PrecisionTokens precision_tokens = {};  // output tokens, as far as the server tells
  std::vector<LoadSecond> seconds = {};
  ViolatingSeconds violating = {};  // with an Slo
};

/// The time per output token of a request in seconds; 0 with fewer than two tokens.
double time_per_output_token(const LoadOutcome& outcome);

LoadReport make_load_report(const LoadResult& result, const LoadReportOptions& options);

std::string format_load_report(const LoadReport& report, const LoadReportOptions& options);

/// The report and every request of it, with the keys of vLLM's result files.
OrderedJson load_report_json(const LoadReport& report, const LoadResult& result,
                             const LoadReportOptions& options);

}  // namespace halley
