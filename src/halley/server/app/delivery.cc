// The second half of a Generation: from the engine's events to the client, on the response thread.
#include <exception>
#include <utility>

#include "halley/base/str.h"
#include "halley/server/app/generation.h"
#include "halley/server/app/http_answers.h"

namespace halley {

void Generation::deliver() noexcept {
  try {
    for (;;) {
      std::vector<std::pair<size_t, TokenEvent>> events;
      {
        const std::lock_guard lock(mutex_);
        events.swap(events_);
        if (events.empty()) {
          is_delivering_ = false;
          return;
        }
      }
      std::string pieces;
      for (const auto& [index, event] : events) handle(index, event, pieces);
      send(pieces);
    }
  } catch (const std::exception& error) {
    // is_delivering_ stays true, so no further job is queued.
    fail_inside(error.what());
  }
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
    fail(end_error(event));
    return;
  }
  ChoiceDelta delta;
  if (!sequence.has_begun) {
    delta = first_delta(sequence, event);
    if (request_.is_stream && head_.is_chat) {
      add_chunk(role_chunk(head_, static_cast<int64_t>(index)), pieces);
    }
    sequence.has_begun = true;
  }
  delta.append(sequence.writer->push(event));
  if (event.finish_reason) {
    sequence.has_ended = true;
    ++num_ended_;
    num_cached_tokens_ += sequence.is_first_of_prompt ? num_cached_prompt_tokens(event) : 0;
  }
  if (!request_.is_stream) {
    sequence.whole.append(std::move(delta));
  } else if (!delta.is_empty()) {
    add_delta(index, delta, pieces);
  }
}

ChoiceDelta Generation::first_delta(const Sequence& sequence, const TokenEvent& event) {
  if (!request_.has_echo) return {};
  const ApiPrompt& prompt = request_.prompts[sequence.prompt_index];
  const auto* text = std::get_if<std::string>(&prompt);
  return sequence.writer->echo(
      text != nullptr ? *text
                      : context_.tokenizer->decode(prompt_ids_[sequence.prompt_index], false),
      prompt_details(event));
}

void Generation::add_delta(size_t index, const ChoiceDelta& delta, std::string& pieces) const {
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
  if (is_over_ || has_answer_) return;
  const bool is_end = num_ended_ == sequences_.size();
  if (!request_.is_stream) {
    if (is_end) respond_whole();
    return;
  }
  if (is_end) {
    if (request_.includes_usage) pieces += sse_event(usage_chunk(head_, usage()));
    pieces += kSseDone;
  }
  if (pieces.empty()) return;
  if (!has_stream_) {
    has_stream_ = true;
    exchange_->start_stream(stream_head(std::move(pieces)));
  } else if (!exchange_->write(std::move(pieces))) {
    is_over_ = true;
    cancel_all();
    return;
  }
  if (!is_end) return;
  has_answer_ = true;
  exchange_->finish();
}

void Generation::respond_whole() {
  std::vector<ChoiceDelta> choices;
  for (Sequence& sequence : sequences_) choices.push_back(std::move(sequence.whole));
  has_answer_ = true;
  HttpResponse response = {.body = json_text(whole_answer(head_, choices, usage()))};
  add_ignored(request_.ignored, response);
  exchange_->respond(std::move(response));
}

ApiUsage Generation::usage() const {
  ApiUsage usage;
  for (const auto& ids : prompt_ids_) usage.num_prompt_tokens += static_cast<int64_t>(ids.size());
  for (const Sequence& sequence : sequences_) {
    usage.num_completion_tokens += sequence.writer->num_tokens();
  }
  usage.num_cached_tokens = num_cached_tokens_;
  return usage;
}

}  // namespace halley
