// The second half of a Generation whose answer is not streamed: from the outputs of its sequences
// to the client. A short answer is one piece, of the response thread. Of a longer one the answer
// thread makes the next piece when the client has taken the last, so that what waits in memory is
// ids and numbers.
#include <exception>
#include <utility>

#include "halley/server/app/generation.h"
#include "halley/server/app/http_answers.h"

namespace halley {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;
// Outputs of at most so many bytes are written by the response thread: half a millisecond of work.
constexpr size_t kShortOutputBytes = size_t{8} << 10;

size_t num_bytes_of(const SequenceOutput& output) {
  return output.text.size() + output.prompt_logprobs.num_bytes() + output.logprobs.num_bytes() +
         output.token_ids.size() * sizeof(int32_t);
}

}  // namespace

// All sequences have ended: nobody else uses outputs_ any more.
void Generation::respond_whole() {
  if (num_output_bytes() <= kShortOutputBytes) return begin_whole();
  // False: the server ends.
  static_cast<void>(
      context_.answer_thread->push([self = shared_from_this()] { self->begin_whole(); }));
}

void Generation::begin_whole() noexcept {
  if (is_over_) return;
  try {
    if (reply_) return respond_with_reply();
    whole_.emplace(
        AnswerWriter::Parts{.head = head_,
                            .usage = whole_usage(),
                            .num_choices = outputs_.size(),
                            .take_choice = [this](size_t index) { return take_choice(index); }},
        context_.texts);
    HttpResponse response;
    const bool has_more = whole_->write(kPieceBytes, response.body);
    add_ignored(request_.ignored, response);
    has_answer_ = true;
    if (!has_more) return exchange_->respond(std::move(response));
    exchange_->start_stream(std::move(response));
    await_client();
  } catch (const std::exception& error) {
    fail_whole(error.what());
  }
}

void Generation::respond_with_reply() {
  const ApiUsage usage = whole_usage();
  const WholeChoice choice = take_choice(0);
  HttpResponse response = {.body = reply_->whole(choice.delta, usage)};
  add_ignored(request_.ignored, response);
  has_answer_ = true;
  exchange_->respond(std::move(response));
}

size_t Generation::num_output_bytes() const {
  size_t num_bytes = whole_ ? whole_->num_bytes() : 0;
  for (const SequenceOutput& output : outputs_) num_bytes += num_bytes_of(output);
  return num_bytes;
}

// Answers get turns, one piece each.
void Generation::await_client() {
  exchange_->when_sent([self = shared_from_this()] {
    static_cast<void>(self->context_.answer_thread->push([self] { self->write_next_piece(); }));
  });
}

void Generation::write_next_piece() noexcept {
  if (is_over_) return;
  try {
    std::string piece;
    const bool has_more = whole_->write(kPieceBytes, piece);
    if (!exchange_->write(std::move(piece))) {
      is_over_ = true;
    } else if (has_more) {
      await_client();
    } else {
      exchange_->finish();
    }
  } catch (const std::exception& error) {
    fail_whole(error.what());
  }
}

WholeChoice Generation::take_choice(size_t index) {
  const Sequence& sequence = sequences_[index];
  SequenceOutput output = std::move(outputs_[index]);
  // To the writer of deltas the whole text is one event.
  TokenEvent event;
  event.text = std::move(output.text);
  event.finish_reason = output.finish_reason;
  event.stop_reason = std::move(output.stop_reason);
  WholeChoice choice;
  choice.delta = sequence.writer->push(event);
  choice.logprobs = std::move(output.logprobs);
  (request_.num_prompt_logprobs ? choice.scored_prompt : choice.prompt_logprobs) =
      std::move(output.prompt_logprobs);
  choice.delta.token_ids = std::move(output.token_ids);
  if (request_.returns_token_ids) {
    choice.delta.prompt_token_ids = prompt_ids_[sequence.prompt_index];
  }
  choice.delta.join_calls();
  if (request_.has_echo) choice.delta.text.insert(0, prompt_text(sequence));
  return choice;
}

ApiUsage Generation::whole_usage() const {
  ApiUsage usage = prompt_usage();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    usage.num_completion_tokens += outputs_[i].num_tokens;
    usage.num_low_tokens += outputs_[i].num_low_tokens;
    usage.num_reasoning_tokens += outputs_[i].reasoning.num_tokens();
    if (sequences_[i].is_first_of_prompt) usage.num_cached_tokens += outputs_[i].num_cached_tokens;
  }
  return usage;
}

// An answer that has begun stays without its end, which the client sees.
void Generation::fail_whole(const std::string& what) {
  if (!has_answer_) return fail_inside(what);
  if (context_.config.on_error) context_.config.on_error(exchange_->request().id, what);
  is_over_ = true;
}

}  // namespace halley
