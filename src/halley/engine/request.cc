#include "halley/engine/request.h"

#include <algorithm>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/base/low_rank.h"

namespace halley {
namespace {

constexpr size_t kCacheSaltBytesMax = 256;

void fail_by_constraint(TokenEvent& event) {
  event.finish_reason = FinishReason::kError;
  event.is_over_constraint_limits = true;
  event.error = constraint_limit_error("constraint");
}

// After the end of a constrained output only EOS may follow, even with ignore_eos.
std::vector<int32_t> stop_ids_of(const GenerateRequest& request, std::span<const int32_t> eos_ids) {
  std::vector<int32_t> ids = request.sampling.stop_token_ids;
  const bool has_end = request.constraint != nullptr && request.constraint->ends_output();
  const bool has_eos = !request.sampling.ignore_eos || has_end;
  if (has_eos) ids.insert(ids.end(), eos_ids.begin(), eos_ids.end());
  return ids;
}

const char* why_no_token(SampleStatus status) {
  return status == SampleStatus::kNotFinite
             ? "logits: expected finite numbers, got NaN or infinity. The weights may be damaged, "
               "or the model overflows its number format."
             : "logits: expected at least one token that may be chosen, got none. Check "
               "logit_bias, min_tokens and the constraint on the output.";
}

}  // namespace

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kError:
      return "error";
  }
  check_failed("FinishReason", str(static_cast<int>(reason)), __FILE__, __LINE__);
}

std::string constraint_limit_error(const std::string& where) {
  return str(where, ": expected an output whose continuations can be told within limits on work ",
             "and memory, got one that leaves too many open. Make its alternatives, patterns and ",
             "lengths simpler.");
}

void check_request(const GenerateRequest& request, int64_t vocab_size, bool has_tokenizer) {
  if (request.prompt_ids.empty()) {
    throw InputError("prompt_ids: expected at least 1 token, got 0");
  }
  for (const int32_t id : request.prompt_ids) {
    if (id < 0 || id >= vocab_size) {
      throw InputError(
          str("prompt_ids: expected token ids of 0 to ", vocab_size - 1, ", got ", id));
    }
  }
  check_sampling_params(request.sampling, vocab_size);
  if (request.cache_salt.size() > kCacheSaltBytesMax) {
    throw InputError(str("cache_salt: expected at most ", kCacheSaltBytesMax, " bytes, got ",
                         request.cache_salt.size()));
  }
  if (!request.sampling.stop.empty() && !has_tokenizer) {
    throw InputError(
        "stop: expected no stop strings, since the engine has no tokenizer. Use "
        "stop_token_ids.");
  }
}

void check_pooling(const GenerateRequest& request, const ModelShape& shape) {
  if (!request.pooling) return;
  const Pooling& pooling = *request.pooling;
  if (request.constraint != nullptr || request.sampling.num_prompt_logprobs >= 0) {
    throw InputError(
        "pooling: expected no constraint and no prompt_logprobs with it, since nothing is "
        "generated.");
  }
  if (pooling.needs_hidden_states()) {
    if (shape.hidden_size > 0) return;
    throw InputError(
        "pooling: expected a model that gives hidden states, which one on the CPU in one stage "
        "does, got one that gives none.");
  }
  if (pooling.token_ids.empty() || pooling.token_ids.size() > Pooling::kTokensMax) {
    throw InputError(str("pooling: expected 1 to ", Pooling::kTokensMax, " token ids, got ",
                         pooling.token_ids.size()));
  }
  for (const int32_t id : pooling.token_ids) {
    if (id >= 0 && id < shape.vocab_size) continue;
    throw InputError(
        str("pooling: expected token ids of 0 to ", shape.vocab_size - 1, ", got ", id));
  }
}

void check_adapter(const GenerateRequest& request, const CausalLm& model) {
  if (request.adapter == nullptr || model.takes_adapters()) return;
  throw InputError(str("adapter: expected none, since the model takes adapters on one CPU alone, ",
                       "not on ", model.device_name(), " or in several ranks, got ",
                       quote(request.adapter->name), "."));
}

Request::Request(GenerateRequest request, TokenCallback on_token, const RequestContext& context)
    : params_(request.sampling),
      on_token_(std::move(on_token)),
      tokens_(std::move(request.prompt_ids)),
      num_prompt_tokens_(static_cast<int64_t>(tokens_.size())),
      num_tokens_max_(context.max_model_len),
      stop_ids_(stop_ids_of(request, context.eos_token_ids)),
      choice_(token_choice_of(params_, stop_ids_, context.seed)),
      stops_(params_.stop, params_.include_stop_str_in_output),
      tokenizer_(context.tokenizer) {
  choice_.dry_breakers = context.dry_breakers;
  if (tokenizer_ != nullptr) detokenizer_.emplace(*tokenizer_, params_.skip_special_tokens);
}

bool Request::is_stop(int32_t token_id) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), token_id) != stop_ids_.end();
}

std::string Request::name_of_token(int32_t token_id) const {
  const std::string name = tokenizer_ == nullptr || token_id >= tokenizer_->num_ids()
                               ? std::string()
                               : tokenizer_->token_of(token_id);
  return name.empty() ? str(token_id) : name;
}

void Request::append_text(const std::string& text, TokenEvent& event) {
  // As with eos, a stop string counts only if at least min_tokens tokens precede its last one.
  const bool may_stop = num_output_tokens() > params_.min_tokens;
  StopMatcher::Piece piece = stops_.push(text, may_stop);
  event.text += piece.text;
  if (!piece.stop_index) return;
  event.finish_reason = FinishReason::kStop;
  event.stop_reason = stops_.stop(*piece.stop_index);
  detokenizer_.reset();  // text after the stop string is dropped
}

void Request::append_token(int32_t token_id, TokenEvent& event) {
  if (detokenizer_) append_text(detokenizer_->push(token_id), event);
}

void Request::finish_text(TokenEvent& event) {
  if (!detokenizer_) return;
  append_text(detokenizer_->finish(), event);
  if (!detokenizer_) return;
  event.text += stops_.finish();
  detokenizer_.reset();
}

// A complete output needs no further step for EOS.
void Request::end_where_complete(OutputState state, TokenEvent& event) {
  if (state == OutputState::kNotAccepted) {
    detokenizer_.reset();
    fail_by_constraint(event);
  } else if (state == OutputState::kComplete) {
    event.finish_reason = FinishReason::kStop;
    finish_text(event);
  }
}

bool Request::is_end(const ChosenToken& chosen) const {
  return chosen.status != SampleStatus::kChosen || is_stop(chosen.token.token_id);
}

bool Request::is_next_the_last() const {
  return num_output_tokens() + 1 >= params_.max_tokens ||
         static_cast<int64_t>(tokens_.size()) + 1 >= num_tokens_max_;
}

TokenEvent Request::end_without_mask() {
  TokenEvent event = end(FinishReason::kError, {});
  fail_by_constraint(event);
  return event;
}

TokenEvent Request::take_token(const ChosenToken& chosen, OutputState state) {
  if (chosen.status != SampleStatus::kChosen) {
    return end(FinishReason::kError, why_no_token(chosen.status));
  }
  const int32_t token_id = chosen.token.token_id;
  tokens_.push_back(token_id);
  TokenEvent event;
  event.token_id = token_id;
  event.logprob = chosen.token.logprob;
  event.top_logprobs = chosen.token.top_logprobs;
  try {
    if (is_stop(token_id)) {
      event.finish_reason = FinishReason::kStop;
      event.stop_reason = name_of_token(token_id);
      if (params_.include_stop_str_in_output) append_token(token_id, event);
      finish_text(event);
      return event;
    }
    append_token(token_id, event);
    if (event.finish_reason) return event;
    end_where_complete(state, event);
    if (event.finish_reason) return event;
    if (num_output_tokens() >= params_.max_tokens ||
        static_cast<int64_t>(tokens_.size()) >= num_tokens_max_) {
      event.finish_reason = FinishReason::kLength;
      finish_text(event);
    }
  } catch (const Error& error) {  // the tokenizer lacks an id of the model
    detokenizer_.reset();
    event.finish_reason = FinishReason::kError;
    event.error = error.what();
  }
  return event;
}

TokenEvent Request::end(FinishReason reason, const std::string& error) {
  TokenEvent event;
  if (detokenizer_) event.text = detokenizer_->finish();
  event.text = stops_.push(event.text, /*may_stop=*/false).text + stops_.finish();
  detokenizer_.reset();
  event.finish_reason = reason;
  event.error = error;
  return event;
}

}  // namespace halley
