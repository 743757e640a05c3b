// One request while it lives in the engine: its tokens, and the way from a row of logits to the
// event that its callback gets.
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

/// What a request needs to know of its engine.
struct RequestContext {
  const Tokenizer* tokenizer = nullptr;  // null: events carry no text
  std::span<const int32_t> eos_token_ids;
  int64_t max_model_len = 0;
  uint64_t seed = 0;           // used where the request states none
  bool model_chooses = false;  // it has a StepRunner
};

/// A TokenChoice says all that the request asks of its tokens, and the model can choose: nobody
/// needs to look at a token before the next one is computed.
bool is_chosen_by_model(const GenerateRequest& request, const RequestContext& context);

/// Not thread-safe. Nothing here depends on other requests or on preemption.
class Request {
 public:
  /// `request` is checked. What `context` points to must outlive this object.
  Request(GenerateRequest request, TokenCallback on_token, const RequestContext& context);

  /// Prompt and output.
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

  /// The model chooses the tokens by token_choice(), and not next_token(): for all of them.
  bool is_chosen_by_model() const { return is_chosen_by_model_; }
  const TokenChoice& token_choice() const { return sampler_.choice(); }

  /// Chooses the next token from its logits [V]. The event has a finish_reason where it was the
  /// last.
  TokenEvent next_token(std::span<const float> logits, SamplerScratch& scratch);
  /// The same for a token that the model has chosen.
  TokenEvent take_token(const ChosenToken& chosen);

  /// The event that ends the request from outside: kCancelled or kError. Carries no token, but the
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
  std::optional<IncrementalDetokenizer> detokenizer_;  // absent: no text (any more)
};

/// Throws InputError where the request cannot be served: no or unknown token ids, parameters out of
/// range, stop strings without a tokenizer. The length is not looked at.
void check_request(const GenerateRequest& request, int64_t vocab_size, bool has_tokenizer);

}  // namespace halley
