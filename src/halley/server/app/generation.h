// One request of /v1/completions or /v1/chat/completions from its body to its answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halley/server/app/app_context.h"
#include "halley/server/app/engine_bridge.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/openai/answer.h"
#include "halley/server/openai/choice_writer.h"

namespace halley {

/// Made on a thread of the HTTP server, prepared on one of the preparers, answered from the
/// deliverer. The engine's callbacks only put their events into a list.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(AppContext& context, std::shared_ptr<HttpExchange> exchange, ApiEndpoint endpoint,
             std::unique_ptr<Ticket> ticket);

  /// Parses, renders, tokenizes and submits. Answers itself where that fails.
  void prepare() noexcept;

 private:
  struct Sequence {
    size_t prompt_index = 0;
    bool is_first_of_prompt = false;
    std::unique_ptr<ChoiceWriter> writer = {};
    ChoiceDelta whole = {};  // of an answer that is not streamed
    bool has_begun = false;
    bool has_ended = false;
  };

  void parse();
  void tokenize();
  std::vector<int32_t> encode(const std::string& text, bool adds_special_tokens) const;
  void plan_lengths();
  void submit();
  void watch_client();
  void start_delivery();
  void schedule_delivery();  // with the mutex held

  void take_event(size_t index, const TokenEvent& event);  // on the engine's thread
  void deliver() noexcept;
  void handle(size_t index, const TokenEvent& event, std::string& pieces);
  ChoiceDelta first_delta(const Sequence& sequence, const TokenEvent& event);
  void add_delta(size_t index, const ChoiceDelta& delta, std::string& pieces) const;
  void add_chunk(OrderedJson chunk, std::string& pieces) const;
  void send(std::string pieces);
  void respond_whole();

  /// The answer is this error. What was submitted is cancelled.
  void fail(const ApiError& error);
  void fail_inside(const std::string& what);
  void cancel_all();
  ApiUsage usage() const;

  AppContext& context_;
  const std::shared_ptr<HttpExchange> exchange_;
  const ApiEndpoint endpoint_;
  const ServerTime arrival_;
  std::unique_ptr<Ticket> ticket_;

  // Written by prepare(), then only read.
  ApiRequest request_;
  AnswerHead head_;
  std::optional<ChunkWriter> chunks_;  // of a stream
  std::shared_ptr<const CompiledConstraint> constraint_;
  std::vector<std::vector<int32_t>> prompt_ids_;  // one list a prompt
  std::vector<int64_t> max_tokens_;               // one a prompt
  std::vector<RequestId> ids_;                    // one a sequence

  // Of the deliverer alone.
  std::vector<Sequence> sequences_;
  size_t num_ended_ = 0;
  int64_t num_cached_tokens_ = 0;
  bool has_stream_ = false;
  bool has_answer_ = false;

  std::atomic<bool> is_over_{false};  // nothing more will be sent: the client went, or an error did

  std::mutex mutex_;  // of what follows
  std::vector<std::pair<size_t, TokenEvent>> events_;
  bool is_delivering_ = false;
  bool is_prepared_ = false;
};

}  // namespace halley
