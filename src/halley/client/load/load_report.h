// The results of a load test, with the names and the layout of vLLM's `bench serve`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/client/load/load_run.h"
#include "halley/client/load/summary.h"
#include "halley/json/json.h"

namespace halley {

/// Service level objectives, in seconds: a request is good if it meets all that are given.
struct Slo {
  std::optional<double> ttft, tpot, e2el;
  bool is_empty() const { return !ttft && !tpot && !e2el; }
};

/// "ttft=200ms,tpot=33ms,e2el=5s": units us, ms and s. Throws InputError.
Slo parse_slo(std::string_view text);

struct LoadReportOptions {
  std::vector<double> percents = {99};
  std::vector<std::string> metrics = {"ttft", "tpot", "itl"};  // to be printed; also "e2el"
  Slo slo = {};
  std::optional<double> request_rate = {};
  int64_t max_concurrency = 0;
  std::vector<int64_t> input_lens =
      {};  // tokens of each prompt, if the server does not report them
};

/// Latencies in milliseconds. Failed requests count only in `failed`.
struct LoadReport {
  int64_t completed = 0, failed = 0;
  double duration = 0;  // seconds
  int64_t total_input = 0, total_output = 0;
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  // per second
  std::optional<double> request_goodput = {};  // good requests per second; with an Slo
  double peak_output_throughput = 0;     // most tokens (events with content) in a second of the run
  int64_t peak_concurrent_requests = 0;  // most requests that ran in one second
  Summary ttft = {};                     // time to first token
  Summary tpot = {};  // (latency - TTFT) / (output tokens - 1), of requests with two tokens or more
  Summary itl = {};   // between events with content
  Summary e2el = {};  // from the start to the last token
  bool has_usage = true;  // the server counted all output tokens
};

/// The time per output token of a request in seconds; 0 with fewer than two tokens.
double time_per_output_token(const LoadOutcome& outcome);

LoadReport make_load_report(const LoadResult& result, const LoadReportOptions& options);

std::string format_load_report(const LoadReport& report, const LoadReportOptions& options);

/// The report and every request of it, with the keys of vLLM's result files.
OrderedJson load_report_json(const LoadReport& report, const LoadResult& result,
                             const LoadReportOptions& options);

}  // namespace halley
