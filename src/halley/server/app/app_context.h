// What all requests of the API share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/engine/engine.h"
#include "halley/server/app/app_config.h"
#include "halley/server/app/chat_format.h"
#include "halley/server/app/output_constraint.h"
#include "halley/server/app/work_queue.h"
#include "halley/server/openai/request_parser.h"
#include "halley/server/openai/token_texts.h"

namespace halley {

/// Sequences between their admission and the engine's queue. Counted where they are rejected, so
/// that nothing is parsed, rendered or tokenized for a request that the engine would reject.
struct AppContext {
  AppConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatFormat format;
  RequestRules rules;
  TokenTexts texts;
  std::unique_ptr<ConstraintCompiler> constraints = {};
  size_t text_bytes_max;  // longer texts cannot fit into the context

  std::atomic<int64_t> num_preparing{0};
  std::atomic<bool> is_draining{false};
  std::atomic<RequestId> next_id{1};

  std::unique_ptr<Engine> engine = {};
  std::unique_ptr<WorkQueue> preparers = {};   // bounded: parsing, templates, tokenizing
  std::unique_ptr<WorkQueue> deliverers = {};  // one job at most for each live request
};

/// Places in the engine's queue that a request holds until its sequences stand there.
class Ticket {
 public:
  /// Nothing where the queue has no place for `num_sequences` more.
  static std::unique_ptr<Ticket> take(AppContext& context, int64_t num_sequences);
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  /// False: there is no place for so many, and nothing has changed.
  [[nodiscard]] bool grow(int64_t num_sequences);
  /// One of them stands in the engine's queue, or was rejected.
  void release_one();

 private:
  explicit Ticket(AppContext& context) : context_(context) {}

  AppContext& context_;
  int64_t num_sequences_ = 0;
};

}  // namespace halley
