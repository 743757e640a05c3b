// The second half of a Generation: from the engine's events to the client, on the response thread.
#include <algorithm>
#include <exception>
#include <utility>

#include "halley/base/str.h"
#include "halley/server/app/generation.h"
#include "halley/server/app/http_answers.h"

namespace halley {
namespace {

constexpr int kRetryAfterS = 1;
// The events of one turn: a few milliseconds of work where each has 20 log probabilities.
constexpr int64_t kTurnBytes = int64_t{16} << 10;

}  // namespace

// One turn: requests with news are served one after the other.
void Generation::deliver() noexcept {
  try {
    switch (take_news()) {
      case News::kEvents:
        return end_turn(deliver_events());
      case News::kFallenBehind:
        return fail(overloaded("The server cannot write the stream as fast as it is generated.",
                               kRetryAfterS));
      case News::kComplete:
        return respond_whole();
    }
  } catch (const std::exception& error) {
    // is_delivering_ stays true, so no further job is queued.
    fail_inside(error.what());
  }
}

Generation::News Generation::take_news() {
  if (num_delivered_ < batch_.size()) return News::kEvents;
  batch_.clear();
  num_delivered_ = 0;
  const std::lock_guard lock(mutex_);
  if (has_fallen_behind_) return News::kFallenBehind;
  batch_.swap(events_);
  return batch_.empty() ? News::kComplete : News::kEvents;
}

// Returns the bytes that do not wait any more.
int64_t Generation::deliver_events() {
  std::string pieces;
  int64_t num_bytes = 0;
  while (num_delivered_ < batch_.size() && num_bytes < kTurnBytes) {
    const auto [index, event] = std::move(batch_[num_delivered_++]);
    num_bytes += waiting_bytes(event);
    handle(index, event, pieces);
  }
  send(std::move(pieces));
  return num_bytes;
}

void Generation::end_turn(int64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  num_waiting_bytes_ -= num_bytes;
  is_delivering_ = false;
  if (num_delivered_ == batch_.size()) return schedule_delivery();
  push_delivery();
}

void Generation::handle(size_t index, const TokenEvent& event, std::string& pieces) {
  Sequence& sequence = sequences_[index];
  if (is_over_ || sequence.has_ended) return;
  if (is_failure(event)) {
    if (!event.error.empty() && context_.config.on_error) {
      context_.config.on_error(exchange_->request().id, event.error);
    }
    // Pieces before the error in this batch are part of the answer.
    send(std::exchange(pieces, {}));
    fail(end_error(request_, event));
    return;
  }
  if (!sequence.has_begun && reply_) {
    pieces += reply_->begin(usage());
  } else if (!sequence.has_begun && head_.is_chat) {
    add_chunk(role_chunk(head_, static_cast<int64_t>(index)), pieces);
  }
  if (request_.has_echo && (!sequence.has_begun || !event.prompt_logprobs.empty())) {
    const std::string text = sequence.has_begun ? std::string() : prompt_text(sequence);
    add_delta(index, sequence.writer->echo(text, prompt_details(event)), pieces);
  }
  ChoiceDelta delta = sequence.writer->push(event);
  if (!sequence.has_begun && request_.returns_token_ids) {
    delta.prompt_token_ids = prompt_ids_[sequence.prompt_index];
  }
  sequence.has_begun = true;
  if (event.finish_reason) {
    sequence.has_ended = true;
    ++num_ended_;
    num_cached_tokens_ += sequence.is_first_of_prompt ? num_cached_prompt_tokens(event) : 0;
  }
  add_delta(index, delta, pieces);
}

std::string Generation::prompt_text(const Sequence& sequence) const {
  const ApiPrompt& prompt = request_.prompts[sequence.prompt_index];
  const auto* text = std::get_if<std::string>(&prompt);
  return text != nullptr ? *text
                         : context_.tokenizer->decode(prompt_ids_[sequence.prompt_index], false);
}

void Generation::add_delta(size_t index, const ChoiceDelta& delta, std::string& pieces) const {
  if (delta.is_empty()) return;
  if (reply_) {
    pieces += reply_->add(delta);
    return;
  }
  const auto choice_index = static_cast<int64_t>(index);
  if (!request_.has_continuous_usage && chunks_->append(choice_index, delta, pieces)) return;
  add_chunk(answer_chunk(head_, choice_index, delta), pieces);
}

void Generation::add_chunk(OrderedJson chunk, std::string& pieces) const {
  if (request_.has_continuous_usage) {
    chunk["usage"] = usage_json(usage());
  } else if (request_.includes_usage) {
    chunk["usage"] = nullptr;
  }
  pieces += sse_event(chunk);
}

void Generation::send(std::string pieces) {
  if (!request_.is_stream || is_over_ || has_answer_) return;
  const bool is_end = num_ended_ == sequences_.size();
  if (is_end && reply_) {
    pieces += reply_->end(usage());
  } else if (is_end) {
    if (request_.includes_usage) pieces += sse_event(usage_chunk(head_, usage()));
    pieces += kSseDone;
  }
  if (pieces.empty()) return;
  if (!has_stream_) {
    has_stream_ = true;
    exchange_->start_stream(stream_head(std::move(pieces)));
  } else if (is_end && reply_) {
    // The last events may have all of the text, several times: the client reads the others first.
    has_answer_ = true;
    exchange_->when_sent([self = shared_from_this(), pieces = std::move(pieces)] {
      if (self->exchange_->write(pieces)) self->exchange_->finish();
    });
    return;
  } else if (!exchange_->write(std::move(pieces))) {
    is_over_ = true;
    cancel_all();
    return;
  }
  if (!is_end) return;
  has_answer_ = true;
  exchange_->finish();
}

ApiUsage Generation::prompt_usage() const {
  ApiUsage usage;
  usage.has_precisions = context_.has_precisions;
  usage.has_reasoning = context_.format.reasoning() != nullptr && head_.is_chat;
  for (const auto& ids : prompt_ids_) usage.num_prompt_tokens += static_cast<int64_t>(ids.size());
  return usage;
}

ApiUsage Generation::usage() const {
  ApiUsage usage = prompt_usage();
  for (const Sequence& sequence : sequences_) {
    usage.num_completion_tokens += sequence.writer->num_tokens();
    usage.num_low_tokens += sequence.writer->num_low_tokens();
    usage.num_reasoning_tokens += sequence.writer->num_reasoning_tokens();
  }
  usage.num_cached_tokens = num_cached_tokens_;
  return usage;
}

}  // namespace halley
