// The choice of a sequence's next token: its parameters and its result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace halley {

/// The parameters of a choice that are one number each; the defaults change nothing. Each has one
/// row in the table of sampling_fields.h.
struct ChoiceParams {
  double temperature = 1;  // 0: greedy
  int64_t top_k = 0;       // below 1: all
  double top_p = 1, min_p = 0;
  double repetition_penalty = 1;                       // over prompt and output
  double presence_penalty = 0, frequency_penalty = 0;  // over the output
  double dry_multiplier = 0;                           // 0: no DRY (dry_penalty.h)
  double dry_base = 1.75;
  int64_t dry_allowed_length = 2;
  int64_t dry_penalty_last_n = -1;  // tokens of prompt and output; -1: all
  double xtc_probability = 0;       // 0: no XTC (sampler.h)
  double xtc_threshold = 0.1;
};

/// Whether a choice depends on the tokens of the sequence.
constexpr bool has_penalty(const ChoiceParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 ||
         params.frequency_penalty != 0;
}

constexpr bool has_dry(const ChoiceParams& params) {
  return params.dry_multiplier > 0 && params.dry_penalty_last_n != 0;
}

/// Above one half at most one token reaches the threshold, and none is left out.
constexpr bool has_xtc(const ChoiceParams& params) {
  return params.xtc_probability > 0 && params.xtc_threshold <= 0.5;
}

/// Whether the sampler of the host alone (sampler.h) can choose by these parameters.
constexpr bool needs_host_sampler(const ChoiceParams& params) {
  return has_dry(params) || has_xtc(params);
}

class DryBreakers;

/// Everything that the choices of one sequence depend on, checked, for a sampler on either device.
struct TokenChoice {
  ChoiceParams params = {};
  std::vector<std::pair<int32_t, double>> logit_bias = {};  // ascending ids
  /// Not chosen while the output has fewer than min_tokens tokens.
  std::vector<int32_t> stop_ids = {};
  int64_t min_tokens = 0;
  uint64_t seed = 0;
  int num_logprobs = -1;                                 // -1: none; n <= kNumLogprobsMax
  std::shared_ptr<const DryBreakers> dry_breakers = {};  // null: none

  static constexpr int kNumLogprobsMax = 20;
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;  // natural logarithm
};

struct SampledToken {
  int32_t token_id = 0;
  std::optional<TokenLogprob> logprob;     // where num_logprobs >= 0
  std::vector<TokenLogprob> top_logprobs;  // the best num_logprobs, most probable first
};

enum class SampleStatus : uint8_t {
  kChosen,
  kNotFinite,    // a logit is NaN or +infinity: the model is broken
  kNothingLeft,  // all are -infinity or masked
};

struct ChosenToken {
  SampleStatus status = SampleStatus::kChosen;
  SampledToken token;  // of kChosen
};

}  // namespace halley
