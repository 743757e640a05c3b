// One request while it lives in the engine: its tokens, and the steps from a chosen token to the
// event for its callback.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/engine/engine.h"
#include "halley/engine/mask_job.h"
#include "halley/engine/stop_matcher.h"
#include "halley/sampling/base/token_choice.h"

namespace halley {

/// The engine's properties that a request needs.
struct RequestContext {
  const Tokenizer* tokenizer = nullptr;  // null: events carry no text
  std::span<const int32_t> eos_token_ids;
  int64_t max_model_len = 0;
  uint64_t seed = 0;                                     // used if the request has none
  std::shared_ptr<const DryBreakers> dry_breakers = {};  // of the request's own texts
};

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

  /// The model's StepRunner chooses tokens by this.
  const TokenChoice& token_choice() const { return choice_; }

  /// Whether the token ends the request by itself, or no token was chosen: then nothing has to
  /// accept it.
  bool is_end(const ChosenToken& chosen) const;
  /// Whether the next token is the last one in any case.
  bool is_next_the_last() const;

  /// The event of the next token. It has a finish_reason if the token is the last one. `state` is
  /// what the constraint says of a token that is not is_end().
  TokenEvent take_token(const ChosenToken& chosen, OutputState state = OutputState::kOpen);
  /// The event that ends the request where the constraint has no mask for its next token.
  TokenEvent end_without_mask();

  /// The event that ends the request from outside: kCancelled or kError. It has no token, but the
  /// text that was held back.
  TokenEvent end(FinishReason reason, const std::string& error);

  /// The callback must not throw: that ends the process.
  void call_back(const TokenEvent& event) const noexcept { on_token_(event); }

 private:
  void end_where_complete(OutputState state, TokenEvent& event);
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
  std::vector<int32_t> stop_ids_;
  TokenChoice choice_;
  StopMatcher stops_;
  const Tokenizer* tokenizer_;
  std::optional<IncrementalDetokenizer> detokenizer_;  // absent: events carry no text
};

/// Throws InputError if the request cannot be served: no or unknown token ids, parameters out of
/// range, stop strings without a tokenizer. Does not check the length.
void check_request(const GenerateRequest& request, int64_t vocab_size, bool has_tokenizer);

/// Throws InputError if the request's pooling cannot be done, or not together with the rest.
void check_pooling(const GenerateRequest& request, const ModelShape& shape);

/// Throws InputError if the request has an adapter and the model takes none.
void check_adapter(const GenerateRequest& request, const CausalLm& model);

}  // namespace halley
