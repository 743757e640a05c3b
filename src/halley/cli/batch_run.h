// Times one batch of requests that starts and ends together: the unit of speed measurements.
#pragma once

#include <cstdint>
#include <vector>

#include "halley/engine/engine.h"

namespace halley::cli {

/// Times in seconds.
struct BatchTimes {
  double latency = 0;
  double first_token = 0;   // until the last request has its first token
  double output_token = 0;  // between two decode steps; 0 with one output token
  /// Inter-token times of the request that got its first token last: meanwhile no request was in
  /// prefill.
  std::vector<double> decode_steps = {};
};

/// Requests with pseudo-random prompts, the same in every run, that generate exactly `output_len`
/// tokens.
std::vector<GenerateRequest> make_batch(int64_t num_requests, int64_t input_len, int64_t output_len,
                                        int64_t vocab_size);

/// Throws InputError if the engine rejects a request, DeviceError if one fails.
BatchTimes run_batch(Engine& engine, const std::vector<GenerateRequest>& requests);

/// `values` is not empty.
double median(std::vector<double> values);

}  // namespace halley::cli
