// The sampling parameters of a request, with vLLM's names and ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "halley/sampling/base/token_choice.h"

namespace halley {

inline constexpr size_t kStopsMax = 64;
inline constexpr size_t kStopBytesMax = 4096;  // all stop strings of a request together
inline constexpr size_t kDryBreakersMax = 32;
inline constexpr size_t kDryBreakerBytesMax = 64;  // of each

/// The defaults are neutral. check_sampling_params() has the ranges.
struct SamplingParams : ChoiceParams {
  int64_t max_tokens = 16;               // >= 1
  int64_t min_tokens = 0;                // no stop before this many
  std::map<int32_t, double> logit_bias;  // [-100, 100]; at most 1024
  std::optional<uint64_t> seed;          // absent: random
  std::vector<std::string> stop;         // none empty; at most kStopsMax and kStopBytesMax
  std::vector<int32_t> stop_token_ids;   // at most 128
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  /// Texts that a repetition does not reach across, for dry_multiplier; none empty; at most
  /// kDryBreakersMax of kDryBreakerBytesMax.
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  int num_logprobs = -1;         // -1: none; 0: the chosen token's; n <= 20: the best n too
  int num_prompt_logprobs = -1;  // the same of every prompt token
};

/// Throws InputError "temperature: expected 0 to 2, got 3".
void check_sampling_params(const SamplingParams& params, int64_t vocab_size);

/// The part of checked parameters that a choice of a token depends on. `stop_ids` are all that end
/// the request; `seed` is used where the parameters have none.
TokenChoice token_choice_of(const SamplingParams& params, std::vector<int32_t> stop_ids,
                            uint64_t seed);

}  // namespace halley
