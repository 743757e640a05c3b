// One request while it lives in the engine: its tokens, and the steps from a row of logits to the
// event for its callback.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/constraint/token_constraint.h"
#include "halley/engine/engine.h"
#include "halley/engine/stop_matcher.h"
#include "halley/models/base/step_runner.h"
#include "halley/sampling/base/sampler.h"

namespace halley {

/// The engine's properties that a request needs.
struct RequestContext {
  const Tokenizer* tokenizer = nullptr;  // null: events carry no text
  std::span<const int32_t> eos_token_ids;
  int64_t max_model_len = 0;
  uint64_t seed = 0;           // used if the request has none
  bool model_chooses = false;  // it has a StepRunner
};

/// Whether the model samples this request's tokens: TokenChoice covers all its parameters, so the
/// host need not see a token before the next one is computed.
bool is_chosen_by_model(const GenerateRequest& request, const RequestContext& context);

/// Not thread-safe. Nothing here depends on other requests or on preemption.
class Request {
 public:
  /// `request` has been checked. The objects of `context` must outlive this one.
  Request(GenerateRequest request, TokenCallback on_token, const RequestContext& context);

  /// Tokens of prompt and output.
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int64_t num_output_tokens() const {
    return static_cast<int64_t>(tokens_.size()) - num_prompt_tokens_;
  }
  int64_t max_tokens() const { return params_.max_tokens; }
  std::span<const int32_t> prompt_ids() const {
    return tokens().first(static_cast<size_t>(num_prompt_tokens_));
  }
  std::span<const int32_t> output_ids() const {
    return tokens().subspan(static_cast<size_t>(num_prompt_tokens_));
  }

  /// Whether the model samples all tokens, by token_choice(), instead of next_token().
  bool is_chosen_by_model() const { return is_chosen_by_model_; }
  const TokenChoice& token_choice() const { return sampler_.choice(); }

  /// Samples the next token from its logits [V]. The event has a finish_reason if the token is the
  /// last one.
  TokenEvent next_token(std::span<const float> logits, SamplerScratch& scratch);
  /// The same for a token that the model has sampled.
  TokenEvent take_token(const ChosenToken& chosen);

  /// The event that ends the request from outside: kCancelled or kError. It has no token, but the
  /// text that was held back.
  TokenEvent end(FinishReason reason, const std::string& error);

  /// The callback must not throw: that ends the process.
  void call_back(const TokenEvent& event) const noexcept { on_token_(event); }

 private:
  void end_where_complete(int32_t token_id, TokenEvent& event);
  bool is_stop(int32_t token_id) const;
  void append_token(int32_t token_id, TokenEvent& event);
  void append_text(const std::string& text, TokenEvent& event);
  void finish_text(TokenEvent& event);
  std::string name_of_token(int32_t token_id) const;

  SamplingParams params_;
  TokenCallback on_token_;
  std::vector<int32_t> tokens_;
  int64_t num_prompt_tokens_;
  int64_t num_tokens_max_;
  std::unique_ptr<TokenConstraint> constraint_;  // null: none
  std::vector<int32_t> stop_ids_;
  bool is_chosen_by_model_;
  Sampler sampler_;
  StopMatcher stops_;
  const Tokenizer* tokenizer_;
  std::optional<IncrementalDetokenizer> detokenizer_;  // absent: events carry no text
};

/// Throws InputError if the request cannot be served: no or unknown token ids, parameters out of
/// range, stop strings without a tokenizer. Does not check the length.
void check_request(const GenerateRequest& request, int64_t vocab_size, bool has_tokenizer);

}  // namespace halley
