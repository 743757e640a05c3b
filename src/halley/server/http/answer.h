// The answer to one request: turns a route's calls into bytes for the connection's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "halley/base/byte_budget.h"
#include "halley/server/http/answer_format.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/http/outbox.h"

namespace halley {

/// Threads as in HttpExchange. Outlives its connection and its server if a route keeps it.
class Answer final : public HttpExchange {
 public:
  Answer(std::shared_ptr<Outbox> outbox, HttpRequest request, AnswerContext context,
         ByteReservation reservation);
  /// Answers with 500, or aborts the stream, if the route has not finished.
  ~Answer() override;

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override;
  void start_stream(HttpResponse response) override;
  bool write(std::string piece) override;
  void finish() override;
  void when_sent(std::function<void()> on_sent) override;
  void keep_alive(HttpResponse head, std::string piece) override;
  bool claim_answer() override;
  void on_disconnect(std::function<void()> on_gone) override;

 private:
  enum class State { kNone, kStreaming, kDone };

  std::string stream_head(const HttpResponse& response) const;
  void append_piece(std::string& bytes, std::string_view piece) const;
  bool closes_after_stream() const { return !context_.keep_alive || context_.is_http_1_0; }

  const std::shared_ptr<Outbox> outbox_;
  const HttpRequest request_;
  const AnswerContext context_;
  const ByteReservation reservation_;
  State state_ = State::kNone;
  bool is_body_sent_ = false;  // for a stream: false for HEAD and for a status without body
};

/// Puts the bytes of a whole answer into `outbox`.
void put_response(Outbox& outbox, HttpResponse response, AnswerContext context);

}  // namespace halley
