#include "halley/engine/request_ledger.h"

#include <utility>

#include "halley/base/check.h"

namespace halley {

RequestLedger::RequestLedger(const EngineConfig& config)
    : max_model_len_(config.max_model_len),
      max_num_queued_(config.max_num_queued),
      max_num_queued_tokens_(config.max_num_queued_tokens) {}

SubmitResult RequestLedger::why_rejected(int64_t num_prompt_tokens) const {
  if (is_stopped()) return {Submit::kStopped, stop_message_};
  if (num_prompt_tokens >= max_model_len_) {
    return {Submit::kTooLong, str("prompt_ids: expected fewer than max_model_len=", max_model_len_,
                                  " tokens, got ", num_prompt_tokens, ". Shorten the prompt.")};
  }
  if (num_queued_ >= max_num_queued_) {
    return {Submit::kQueueFull, str("queue: expected fewer than max_num_queued=", max_num_queued_,
                                    " waiting requests, got ", num_queued_, ". Try again later.")};
  }
  // A request larger than the limit is admitted into an empty queue.
  if (num_queued_ > 0 && num_queued_tokens_ + num_prompt_tokens > max_num_queued_tokens_) {
    return {Submit::kQueueFull,
            str("queue: expected at most max_num_queued_tokens=", max_num_queued_tokens_,
                " waiting prompt tokens, got ", num_queued_tokens_, " and ", num_prompt_tokens,
                " more. Try again later.")};
  }
  return {};
}

void RequestLedger::add(RequestId id, int64_t num_prompt_tokens) {
  HALLEY_CHECK(num_prompt_tokens >= 1, id);
  HALLEY_CHECK(queued_tokens_.emplace(id, num_prompt_tokens).second, id);
  ++num_queued_;
  num_queued_tokens_ += num_prompt_tokens;
}

void RequestLedger::start(RequestId id) {
  const int64_t num_tokens = std::exchange(queued_tokens_.at(id), 0);
  HALLEY_CHECK(num_tokens > 0, id);
  --num_queued_;
  num_queued_tokens_ -= num_tokens;
}

void RequestLedger::end(RequestId id) {
  if (queued_tokens_.at(id) > 0) start(id);
  queued_tokens_.erase(id);
}

}  // namespace halley
