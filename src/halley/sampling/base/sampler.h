// Chooses one request's next token from a row of logits, on the CPU.
//
// The order is that of vLLM (v1/sample/sampler.py):
//   1. log-probabilities are taken from the logits as they are;
//   2. ids that the request's constraint does not allow are masked, and so are ids that would stop
//      the request while there are fewer than min_tokens tokens;
//   3. logit bias is added;
//   4. repetition penalty (prompt and output) divides positive logits and multiplies others;
//   5. frequency penalty times the token's count in the output is subtracted, then presence
//      penalty;
//   6. DRY lowers tokens that go on with a repetition (dry_penalty.h);
//   7. temperature 0 takes the largest; any other divides;
//   8. min_p keeps every token that is at least min_p times as probable as the most probable one;
//   9. top_k keeps the k most probable tokens;
//  10. top_p keeps the fewest of the most probable tokens that have at least that part of what is
//      left;
//  11. XTC, with its probability: of those left, all that have at least xtc_threshold of the
//      probability before temperature are left out but the least probable one of them, where they
//      are two or more;
//  12. one is drawn with the uniform number that belongs to (seed, index of the token).
// If XTC takes place at temperature 0, steps 8 to 11 take place as at temperature 1, and
// the largest of what they leave is taken. Steps 6 and 11 are llama.cpp's (src/llama-sampling.cpp);
// whether step 11 takes place is decided by another number that belongs to (seed, index).
//
// All arithmetic is f64 in a fixed order; of equal logits the lower id comes first. The GPU's
// sampler (sampling/cuda) follows the same steps, without DRY and XTC.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "halley/sampling/base/dry_penalty.h"
#include "halley/sampling/base/token_choice.h"
#include "halley/sampling/base/token_mask.h"

namespace halley {

/// A token that may be drawn.
struct SampleCandidate {
  int32_t token_id = 0;
  double score = 0;   // logit after bias and penalties
  double weight = 0;  // exp of (score - largest) / temperature: its probability times a constant
};

/// Memory that the samplers of all requests use in turn, so that a step allocates nothing.
struct SamplerScratch {
  std::vector<double> scores;  // [V]
  std::vector<SampleCandidate> candidates;
  std::vector<int32_t> ids;
  std::vector<int64_t> repeats;
  TokenMask allowed;  // of the request's constraint
};

/// One request's. Not thread-safe.
class Sampler {
 public:
  /// `choice` is checked and for this vocabulary.
  Sampler(TokenChoice choice, std::span<const int32_t> prompt_ids);

  const TokenChoice& choice() const { return choice_; }

  /// Chooses from `logits` [V] and remembers the choice. `allowed`, where it is not null, has the
  /// tokens that may be chosen.
  [[nodiscard]] SampleStatus sample(std::span<const float> logits, SamplerScratch& scratch,
                                    SampledToken& chosen, const TokenMask* allowed = nullptr);

  /// Leaves in scratch.candidates what may be drawn after `logits`, ids ascending; for temperature
  /// 0 the one token.
  [[nodiscard]] SampleStatus filter(std::span<const float> logits, SamplerScratch& scratch,
                                    const TokenMask* allowed = nullptr) const;

  /// Counts a token as generated.
  void record(int32_t token_id);

  int64_t num_output_tokens() const { return num_output_tokens_; }

 private:
  const ChoiceParams& params() const { return choice_.params; }
  void adjust(SamplerScratch& scratch, const TokenMask* allowed) const;
  bool draws_xtc() const;
  void keep_xtc(std::vector<SampleCandidate>& candidates, double max) const;
  void apply_penalties(std::vector<double>& scores) const;
  void keep_top_p(std::vector<SampleCandidate>& candidates) const;

  TokenChoice choice_;
  std::vector<int32_t> prompt_ids_;  // sorted, each once; empty where no penalty needs them
  std::unordered_map<int32_t, int64_t> output_counts_;
  int64_t num_output_tokens_ = 0;
  std::optional<DryPenalty> dry_;
};

/// The log-softmax of `logits` at `token_id`, and the best `num_top` with theirs; no logit is NaN.
TokenLogprob logprob_of(std::span<const float> logits, int32_t token_id);
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int num_top,
                                       SamplerScratch& scratch);

/// log(sum(exp(logits))) in f64.
double log_sum_exp(std::span<const float> logits);

}  // namespace halley
