// One request that generates nothing, from its body to its answer: embeddings, reranking, scores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "halley/server/app/app_context.h"
#include "halley/server/app/request_watch.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/pooling_answer.h"

namespace halley {

/// Created on a thread of the HTTP server, preprocessed on a preprocessing thread. The engine's
/// callbacks keep what it has pooled; once all sequences have ended, the answer is written from the
/// answer thread.
class PooledRequest : public std::enable_shared_from_this<PooledRequest> {
 public:
  PooledRequest(AppContext& context, std::shared_ptr<HttpExchange> exchange, ApiEndpoint endpoint,
                std::unique_ptr<Admission> admission);

  /// Drops the work once the client is gone. To be called once, before preprocess().
  void watch_client();
  /// Parses, tokenizes and submits. If that fails, it answers with the error.
  void preprocess() noexcept;

 private:
  void parse();
  void check_model() const;
  void tokenize();
  void add_prompt(std::vector<int32_t> ids, const std::string& param);
  void add_text(const std::string& text, const std::string& param);
  void add_pairs(const YesNoScoring& scoring);
  void reserve_memory();
  void submit();
  bool is_yes_no() const;

  void take_event(size_t index, const TokenEvent& event);  // on the engine's thread
  void push_answer();                                      // with the mutex held
  void cancel_all();

  // On the answer thread.
  void answer() noexcept;
  void write_answer();
  std::vector<double> scores() const;
  void respond(std::string body);
  void await_client();
  void write_next_piece() noexcept;
  void fail(const ApiError& error);
  void fail_inside(const char* what);

  AppContext& context_;
  const std::shared_ptr<HttpExchange> exchange_;
  const ApiEndpoint endpoint_;
  const ServerTime arrival_;
  std::unique_ptr<Admission> admission_;
  const std::shared_ptr<RequestWatch> watch_;

  // Written by preprocess(), then only read.
  ApiRequest request_;
  std::shared_ptr<const Adapter> adapter_;  // null: none
  AnswerHead head_;
  int64_t num_prompt_tokens_ = 0;
  std::vector<std::vector<int32_t>> prompts_;  // one per sequence
  std::vector<RequestId> ids_;                 // the same
  std::optional<ByteReservation> reservation_;

  std::optional<EmbeddingWriter> writer_;  // of the answer thread
  std::atomic<bool> is_over_{false};       // nothing more is sent: client gone, or error sent

  std::mutex mutex_;                        // guards the members below
  std::vector<std::vector<float>> pooled_;  // one per sequence
  std::optional<TokenEvent> failure_;       // the first
  size_t num_ended_ = 0;
  bool has_ids_ = false;  // from then on ids_ does not change
  bool is_submitted_ = false;
};

}  // namespace halley
