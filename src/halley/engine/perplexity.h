// Perplexity: how well a model predicts a text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "halley/models/base/causal_lm.h"

namespace halley {

struct PerplexityOptions {
  std::optional<KvDType> kv_dtype;  // absent: the model's own
  int64_t chunk_rows = 128;         // tokens per forward; its logits [chunk_rows, V] are in memory
  /// Called after every chunk with the tokens scored so far and their total.
  std::function<void(int64_t num_done, int64_t num_total)> on_progress;
  /// Called for every scored token, in order, with its index in the text and the logits [V] that
  /// predict it.
  std::function<void(int64_t token_index, std::span<const float> logits)> on_logits;
};

struct PerplexityResult {
  double perplexity = 0;           // exp(nll / num_tokens)
  double nll = 0;                  // negative log likelihood of all scored tokens, in nats
  int64_t num_tokens = 0;          // number of scored tokens
  std::vector<double> window_nll;  // sum of each window that scores a token
};

/// Cuts `ids` into windows of `window` tokens that do not overlap, and scores all tokens of each
/// but the first, given those before it in the window. No token is added. The last window may be
/// shorter; with one token it scores nothing. Sums are f64.
///
/// Throws InputError if the window, the ids or the options are out of range or no token is left
/// to score, CheckpointError if the model gives a token no finite likelihood.
PerplexityResult compute_perplexity(CausalLm& model, std::span<const int32_t> ids, int64_t window,
                                    const PerplexityOptions& options = {});

/// The number of tokens that compute_perplexity() scores in a text of `num_ids`: all but the first
/// of each window.
int64_t num_scored_tokens(int64_t num_ids, int64_t window);

/// The negative log likelihood of `id` in nats. Throws CheckpointError that names the token's index
/// in the text if it is not finite.
double token_nll(std::span<const float> logits, int32_t id, int64_t token_index);

}  // namespace halley
