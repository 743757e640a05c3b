// DRY ("don't repeat yourself"): a penalty on tokens that would go on with a repetition of earlier
// text. Names and values follow llama.cpp's server (tools/server/README.md,
// src/llama-sampling.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "halley/sampling/base/token_choice.h"

namespace halley {

/// Token sequences that no repetition reaches across, as a line end or a quotation mark: one for
/// each way in which tokens can spell a breaker's text.
class DryBreakers {
 public:
  /// A text's first token, which may begin before the text, and the tokens of its rest.
  void add(int32_t head, std::vector<int32_t> tail);

  /// The tails of a head; empty: it begins no breaker.
  std::span<const std::vector<int32_t>> tails_of(int32_t head) const;
  /// Whether the token alone is a breaker.
  bool is_breaker(int32_t token_id) const;
  size_t num_heads() const { return tails_.size(); }

 private:
  std::unordered_map<int32_t, std::vector<std::vector<int32_t>>> tails_;
};

/// The penalty of one sequence.
///
/// The window is the last dry_penalty_last_n tokens of prompt and output, all for -1. A token that
/// followed an earlier occurrence of the window's last n tokens has a repetition of n; the longest
/// one counts. No repetition has tokens of the last breaker or before it. For n of at least
/// dry_allowed_length the token's score is lowered by
///   dry_multiplier * dry_base ^ (n - dry_allowed_length),
/// unless the token is a breaker itself. Not thread-safe.
class DryPenalty {
 public:
  /// `params` has_dry(); null `breakers`: none.
  DryPenalty(const ChoiceParams& params, std::shared_ptr<const DryBreakers> breakers,
             std::span<const int32_t> prompt_ids);

  void record(int32_t token_id) { tokens_.push_back(token_id); }

  /// Lowers scores [V]. `repeats` is memory to use. Time and memory are linear in the window.
  void apply(std::vector<double>& scores, std::vector<int64_t>& repeats) const;

 private:
  int64_t window_size() const;
  /// The token with `i` tokens behind it.
  int32_t token_back(int64_t i) const {
    return tokens_[tokens_.size() - 1 - static_cast<size_t>(i)];
  }
  int64_t repeat_max(int64_t num_tokens) const;
  bool ends_with_tail(const std::vector<int32_t>& tail, int64_t head) const;
  double penalty_of(int64_t repeat) const;

  double multiplier_, base_;
  int64_t allowed_length_, last_n_;
  std::shared_ptr<const DryBreakers> breakers_;
  std::vector<int32_t> tokens_;  // prompt and output
};

}  // namespace halley
