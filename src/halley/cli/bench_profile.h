// Profiles one step of a model, operation by operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/models/base/causal_lm.h"

namespace halley::cli {

struct ProfileSizes {
  int64_t batch_size = 1, input_len = 1, output_len = 1;
  int64_t num_rows_max = 512;  // rows of a step, at most
  KvDType kv_dtype = KvDType::kF16;
};

struct StepProfile {
  std::string name;  // "prefill" or "decode"
  int64_t num_sequences = 0, num_rows = 0;
  int64_t num_past = 0;  // cached positions of each sequence
  std::vector<OpTime> times;
  std::vector<OpTime> costs = {};  // CausalLm::op_costs() of a decode step
};

/// A prefill step of as many whole prompts as fit (at least a part of one), and a decode step of
/// all sequences in the middle of their outputs, after positions that were computed. Each is
/// profiled three times after one warm-up run; the fastest is kept. Prepares the model and makes
/// its own KV cache, so no engine may use the model.
std::vector<StepProfile> profile_steps(CausalLm& model, const ProfileSizes& sizes);

void print_profile(const std::vector<StepProfile>& steps);
/// Prints the same tables.
OrderedJson json_of(const std::vector<StepProfile>& steps);

/// Events for chrome://tracing and ui.perfetto.dev, one process a step ("Trace Event Format").
void write_trace(const std::vector<StepProfile>& steps, const std::string& path);

}  // namespace halley::cli
