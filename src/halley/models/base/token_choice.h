// How a sequence's next token is chosen from its logits, and what comes out of the choice.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace halley {

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

/// The numbers of a request's sampling parameters, checked, for a model that chooses by itself. The
/// rules are those of the engine's sampler (engine/sampler.h), step by step.
struct TokenChoice {
  double temperature = 1;  // 0: greedy
  int64_t top_k = 0;       // 0: all
  double top_p = 1, min_p = 0;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<int32_t, double>> logit_bias = {};  // ascending ids
  /// Not chosen while the output has fewer than min_tokens tokens.
  std::vector<int32_t> stop_ids = {};
  int64_t min_tokens = 0;
  uint64_t seed = 0;
  int num_logprobs = -1;  // -1: none; n <= kNumLogprobsMax

  static constexpr int kNumLogprobsMax = 20;
};

}  // namespace halley
