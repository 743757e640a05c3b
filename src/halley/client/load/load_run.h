// Sends requests to a server at given times, whether or not earlier ones are answered, and measures
// every answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "halley/client/http/http_client.h"
#include "halley/client/load/stream_account.h"

namespace halley {

struct LoadOutcome {
  std::string error;              // empty: success
  int64_t num_prompt_tokens = 0;  // the server's count; 0 if it reports none
  int64_t num_output_tokens = 0;
  bool has_usage = false;  // output tokens are the server's count, not that of events
  double start = 0;        // seconds since the run's beginning
  double time_to_first_token = 0, latency = 0;  // seconds since `start`
  std::vector<double> inter_token_latencies = {};
  PrecisionTokens precision_tokens = {};  // as StreamAccount's members of these names
  std::vector<EventTokens> event_tokens = {};
  std::vector<std::string> precisions = {};
};

struct LoadResult {
  std::vector<LoadOutcome> outcomes;  // one per request, in the order of arrivals
  double duration = 0;                // seconds from the run's beginning to its last answer's end
};

struct LoadRunOptions {
  std::string target = "/v1/completions";
  std::vector<std::pair<std::string, std::string>> headers;
  int64_t max_concurrency = 0;  // 0: no limit; further requests wait, and their time starts later
};

/// Sends arrivals.size() requests, the i-th at arrivals[i] seconds (ascending) with the body
/// `make_body(i)`. Every request has an outcome: an incomplete stream is an error.
/// `on_outcome` is called with every outcome as it arrives.
LoadResult run_load(HttpClient& client, const std::vector<double>& arrivals,
                    const std::function<std::string(size_t)>& make_body,
                    const LoadRunOptions& options,
                    const std::function<void(const LoadOutcome&)>& on_outcome = {});

}  // namespace halley
