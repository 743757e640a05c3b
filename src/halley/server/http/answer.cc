#include "halley/server/http/answer.h"

#include <utility>

#include "halley/base/check.h"
#include "halley/server/http/http_error.h"

namespace halley {
namespace {

HttpResponse internal_error() {
  return http_error(500, "The server failed. Its operator finds more by the request's id.",
                    "internal_error");
}

}  // namespace

void put_response(Outbox& outbox, HttpResponse response, AnswerContext context) {
  if (!is_well_formed(response)) response = internal_error();
  std::string bytes = format_head(response, context, BodyFraming::kLength);
  if (!context.is_head && has_body(response.status)) bytes += response.body;
  outbox.set_status(response.status, !context.keep_alive);
  outbox.put(bytes, Outbox::Kind::kWhole);
}

Answer::Answer(std::shared_ptr<Outbox> outbox, HttpRequest request, AnswerContext context,
               ByteReservation reservation)
    : outbox_(std::move(outbox)),
      request_(std::move(request)),
      context_(std::move(context)),
      reservation_(std::move(reservation)) {}

Answer::~Answer() {
  if (state_ == State::kNone && claim_answer()) {
    put_response(*outbox_, internal_error(), context_);
  }
  if (state_ == State::kStreaming) outbox_->put({}, Outbox::Kind::kBroken);
}

void Answer::respond(HttpResponse response) {
  HALLEY_CHECK(state_ == State::kNone, request_.path);
  HALLEY_CHECK(claim_answer(), request_.path);
  state_ = State::kDone;
  put_response(*outbox_, std::move(response), context_);
}

void Answer::start_stream(HttpResponse response) {
  HALLEY_CHECK(state_ == State::kNone, request_.path);
  const bool has_begun = !claim_answer();
  state_ = State::kStreaming;
  is_body_sent_ = !context_.is_head && has_body(response.status);
  std::string bytes;
  if (!has_begun) {
    if (!is_well_formed(response)) {
      // The route continues with write(), which reports that the client is gone.
      put_response(*outbox_, internal_error(), context_);
      return;
    }
    bytes = stream_head(response);
    outbox_->set_status(response.status, closes_after_stream());
  }
  append_piece(bytes, response.body);
  outbox_->put(bytes, has_begun ? Outbox::Kind::kNext : Outbox::Kind::kFirst);
}

void Answer::keep_alive(HttpResponse head, std::string piece) {
  HALLEY_CHECK(state_ == State::kNone, request_.path);
  if (context_.is_head || !has_body(head.status) || !is_well_formed(head)) return;
  Outbox::KeepAlive parts = {.head = stream_head(head),
                             .piece = {},
                             .status = head.status,
                             .close_after = closes_after_stream()};
  is_body_sent_ = true;
  append_piece(parts.piece, piece);
  outbox_->set_keep_alive(std::move(parts));
}

bool Answer::claim_answer() {
  if (state_ != State::kNone) return false;
  if (outbox_->claim_beginning()) return true;
  state_ = State::kStreaming;
  return false;
}

std::string Answer::stream_head(const HttpResponse& response) const {
  AnswerContext context = context_;
  context.keep_alive = !closes_after_stream();
  return format_head(response, context,
                     context.is_http_1_0 ? BodyFraming::kUntilClose : BodyFraming::kChunked);
}

void Answer::append_piece(std::string& bytes, std::string_view piece) const {
  if (!is_body_sent_ || piece.empty()) return;  // an empty chunk would end the stream
  if (context_.is_http_1_0) {
    bytes += piece;
  } else {
    append_chunk(bytes, piece);
  }
}

bool Answer::write(std::string piece) {
  HALLEY_CHECK(state_ == State::kStreaming, request_.path);
  if (!is_body_sent_) piece.clear();
  // An empty chunk would end the stream.
  const bool as_chunk = !piece.empty() && !context_.is_http_1_0;
  return outbox_->put(piece, Outbox::Kind::kNext, as_chunk);
}

void Answer::finish() {
  HALLEY_CHECK(state_ == State::kStreaming, request_.path);
  state_ = State::kDone;
  const bool has_end = is_body_sent_ && !context_.is_http_1_0;
  outbox_->put(has_end ? kLastChunk : std::string_view(), Outbox::Kind::kLast);
}

void Answer::when_sent(std::function<void()> on_sent) {
  HALLEY_CHECK(state_ == State::kStreaming, request_.path);
  outbox_->when_sent(std::move(on_sent));
}

void Answer::on_disconnect(std::function<void()> on_gone) {
  outbox_->set_on_gone(std::move(on_gone));
}

}  // namespace halley
