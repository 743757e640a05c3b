// Sampling options of the command line, with the defaults of the model's generation_config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/sampling/base/sampling_fields.h"
#include "halley/sampling/base/sampling_params.h"

namespace halley::cli {

/// The options of a user; absent values come from the model, then from SamplingParams.
struct SamplingOptions {
  int64_t max_tokens = 128;
  int64_t min_tokens = 0;
  SamplingSettings given;               // of the options that the table of parameters has
  std::vector<std::string> logit_bias;  // "ID:BIAS"
  std::vector<std::string> dry_sequence_breakers;  // empty: the default; "none": none
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool is_stop_included = false;
  bool ignore_eos = false;
  bool keeps_special_tokens = false;
  int num_logprobs = -1;
};

void add_sampling_options(CLI::App& app, SamplingOptions& options);

/// Throws InputError where a logit bias cannot be read; ranges are checked by the engine.
SamplingParams make_sampling_params(const SamplingOptions& options,
                                    const GenerationConfig& generation);

}  // namespace halley::cli
