// Where the time of a step goes: its operations one by one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/models/base/causal_lm.h"

namespace halley::cli {

struct ProfileSizes {
  int64_t batch_size = 1, input_len = 1, output_len = 1;
  int64_t num_rows_max = 512;  // of a step
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
/// all sequences at the middle of their outputs, behind positions that were computed. Each is
/// profiled three times after it ran once; the fastest is kept. Prepares the model and makes a
/// cache of its own, so that the model must be in nobody else's hands.
std::vector<StepProfile> profile_steps(CausalLm& model, const ProfileSizes& sizes);

void print_profile(const std::vector<StepProfile>& steps);
/// The same tables.
OrderedJson json_of(const std::vector<StepProfile>& steps);

/// Events for chrome://tracing and ui.perfetto.dev, one process a step ("Trace Event Format").
void write_trace(const std::vector<StepProfile>& steps, const std::string& path);

}  // namespace halley::cli
