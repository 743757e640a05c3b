// One request that generates, from its body to its answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halley/server/app/answer_budget.h"
#include "halley/server/app/app_context.h"
#include "halley/server/app/engine_bridge.h"
#include "halley/server/app/request_watch.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/openai/answer.h"
#include "halley/server/openai/answer_writer.h"
#include "halley/server/openai/choice_writer.h"
#include "halley/server/openai/reply.h"
#include "halley/server/openai/sequence_output.h"

namespace halley {

/// Created on a thread of the HTTP server, preprocessed on a preprocessing thread, answered from
/// the response thread or, where the answer has several pieces, from the answer thread. The
/// engine's callbacks add their events to a stream's list, or to a whole answer's texts and log
/// probabilities.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  /// A chat of another API has `api`, else null. Whoever lets go of the object last, the answer
  /// thread frees it where that takes long.
  static std::shared_ptr<Generation> make(AppContext& context,
                                          std::shared_ptr<HttpExchange> exchange,
                                          ApiEndpoint endpoint, const ChatApi* api,
                                          std::unique_ptr<Admission> admission);

  /// Drops the work once the client is gone. To be called once, before preprocess().
  void watch_client();
  /// Parses, renders, tokenizes and submits. If that fails, it answers with the error. What is left
  /// of a request with a grammar goes to another lane.
  void preprocess() noexcept;

 private:
  Generation(AppContext& context, std::shared_ptr<HttpExchange> exchange, ApiEndpoint endpoint,
             const ChatApi* api, std::unique_ptr<Admission> admission);

  struct Sequence {
    size_t prompt_index = 0;
    bool is_first_of_prompt = false;
    std::unique_ptr<ChoiceWriter> writer = {};
    bool has_begun = false;
    bool has_ended = false;
  };
  using WaitingEvent = std::pair<size_t, TokenEvent>;  // with its sequence

  void parse();
  void parse_body();
  void tokenize();
  void truncate_prompts();
  std::vector<int32_t> encode(const std::string& text, bool adds_special_tokens) const;
  void plan_lengths();
  void reserve_memory();
  void submit();
  void prepare_constrained() noexcept;
  void prepare();
  void guarded(const std::function<void()>& step) noexcept;
  void start_delivery();

  // With the mutex held.
  bool has_news() const;
  void schedule_delivery();
  void push_delivery();
  void add_waiting(size_t index, const TokenEvent& event);
  void push_waiting(size_t index, TokenEvent event);

  void take_event(size_t index, const TokenEvent& event);  // on the engine's thread

  // On the response thread.
  void deliver() noexcept;
  enum class News : uint8_t { kEvents, kFallenBehind, kComplete };
  News take_news();
  int64_t deliver_events();
  void end_turn(int64_t num_bytes);
  void handle(size_t index, const TokenEvent& event, std::string& pieces);
  std::string prompt_text(const Sequence& sequence) const;
  void add_delta(size_t index, const ChoiceDelta& delta, std::string& pieces) const;
  void add_chunk(OrderedJson chunk, std::string& pieces) const;
  void send(std::string pieces);
  HttpResponse stream_head(std::string events) const;

  // For an answer that is not streamed, on the response thread or the answer thread.
  void respond_whole();
  void respond_with_reply();
  void begin_whole() noexcept;
  void write_next_piece() noexcept;
  void await_client();
  WholeChoice take_choice(size_t index);
  ApiUsage whole_usage() const;
  size_t num_output_bytes() const;
  void fail_whole(const std::string& what);

  /// Answers with this error, and cancels the submitted sequences.
  void fail(const ApiError& error);
  void fail_inside(const std::string& what);
  void cancel_all();
  ApiUsage prompt_usage() const;
  ApiUsage usage() const;

  AppContext& context_;
  const std::shared_ptr<HttpExchange> exchange_;
  const ApiEndpoint endpoint_;
  const ChatApi* const api_;  // null: OpenAI's completions and chats
  const ServerTime arrival_;
  std::unique_ptr<Admission> admission_;
  const std::shared_ptr<RequestWatch> watch_;

  // Written by preprocess(), then only read.
  ApiRequest request_;
  std::shared_ptr<const Adapter> adapter_;  // null: none
  AnswerHead head_;
  std::optional<ChunkWriter> chunks_;  // only for a stream
  std::shared_ptr<const CompiledConstraint> constraint_;
  ReasoningStart reasoning_;                      // of every sequence
  std::vector<std::vector<int32_t>> prompt_ids_;  // one list per prompt
  std::vector<int64_t> max_tokens_;               // one per prompt
  std::vector<RequestId> ids_;                    // one per sequence
  AnswerBytes answer_bytes_;
  std::optional<ByteReservation> reservation_;  // returned with this object

  // Used by the response thread only, then by the answer thread.
  std::vector<Sequence> sequences_;
  size_t num_ended_ = 0;
  int64_t num_cached_tokens_ = 0;
  bool has_stream_ = false;
  bool has_answer_ = false;
  std::vector<WaitingEvent> batch_;  // events that were taken, delivered up to num_delivered_
  size_t num_delivered_ = 0;
  std::optional<AnswerWriter> whole_;
  std::unique_ptr<Reply> reply_;  // null iff api_ is; made by preprocess()

  std::atomic<bool> is_over_{false};  // nothing more is sent: client gone, or error sent

  std::mutex mutex_;                     // guards the members below
  std::vector<WaitingEvent> events_;     // of a stream; others: failures alone
  int64_t num_waiting_bytes_ = 0;        // of events_ and batch_
  bool has_fallen_behind_ = false;       // more events waited than the stream has memory for
  std::vector<SequenceOutput> outputs_;  // of an answer that is not streamed, one per sequence
  size_t num_complete_outputs_ = 0;
  bool is_delivering_ = false;
  bool has_ids_ = false;  // from then on ids_ does not change
  bool is_preprocessed_ = false;
};

}  // namespace halley
