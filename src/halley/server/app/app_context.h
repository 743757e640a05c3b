// The state that all requests of the API share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "halley/base/byte_budget.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/engine/engine.h"
#include "halley/server/app/app_config.h"
#include "halley/server/app/chat_format.h"
#include "halley/server/app/output_constraint.h"
#include "halley/server/app/preprocessing_threads.h"
#include "halley/server/app/work_queue.h"
#include "halley/server/openai/request_parser.h"
#include "halley/server/openai/token_texts.h"

namespace halley {

/// `num_preprocessing` counts sequences between their admission and the engine's queue. Admission
/// counts them before a request is parsed, rendered and tokenized, so no work is done for a request
/// that the engine would reject.
struct AppContext {
  AppConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatFormat format;
  RequestRules rules;
  TokenTexts texts;
  bool has_precisions = false;  // the model has several
  std::unique_ptr<ConstraintCompiler> constraints = {};
  size_t token_bytes_max;                         // of the vocabulary's longest token
  size_t text_bytes_max;                          // a longer text cannot fit the context
  std::shared_ptr<ByteBudget> answer_bytes = {};  // of all answers in the making

  std::atomic<int64_t> num_preprocessing{0};
  std::atomic<bool> is_draining{false};
  std::atomic<RequestId> next_id{1};

  std::unique_ptr<Engine> engine = {};
  std::unique_ptr<PreprocessingThreads> preprocessing_threads = {};
  // Both have at most one job per live request.
  std::unique_ptr<WorkQueue> response_thread = {};  // streams, and answers of one piece
  std::unique_ptr<WorkQueue> answer_thread = {};    // answers of several pieces, one piece a job
};

/// Slots in the engine's queue that a request reserves until its sequences are queued there.
class Admission {
 public:
  /// Null if the queue has no slots for `num_sequences` more.
  static std::unique_ptr<Admission> take(AppContext& context, int64_t num_sequences);
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  /// Reserves more slots; returns false and changes nothing if there are not enough.
  [[nodiscard]] bool grow(int64_t num_sequences);
  /// Releases one slot: its sequence was queued by the engine, or rejected.
  void release_one();

 private:
  explicit Admission(AppContext& context) : context_(context) {}

  AppContext& context_;
  int64_t num_sequences_ = 0;
};

}  // namespace halley
