// Which requests live in an engine, which of them wait and never ran, and whether one more may
// come.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "halley/engine/engine.h"

namespace halley {

/// Not thread-safe: the engine's lock guards it. A request is in it from its submit until just
/// before its last event, so that the counts are exact whenever the lock is held.
class RequestLedger {
 public:
  /// `config` has no defaults left.
  explicit RequestLedger(const EngineConfig& config);

  /// kQueued, or why a request with this many prompt tokens is rejected now: kStopped, kTooLong,
  /// kQueueFull. 0 tokens fit wherever there is a place.
  SubmitResult why_rejected(int64_t num_prompt_tokens) const;

  /// A request whose id does not live was accepted.
  void add(RequestId id, int64_t num_prompt_tokens);
  /// It runs for the first time.
  void start(RequestId id);
  /// It is no more.
  void end(RequestId id);

  /// Rejects everything from now on, for the reason that was declared last.
  void stop(const std::string& message) { stop_message_ = message; }
  bool is_stopped() const { return !stop_message_.empty(); }

  bool is_live(RequestId id) const { return queued_tokens_.contains(id); }
  int64_t num_live() const { return static_cast<int64_t>(queued_tokens_.size()); }
  int64_t num_queued() const { return num_queued_; }
  int64_t num_queued_tokens() const { return num_queued_tokens_; }

 private:
  const int64_t max_model_len_, max_num_queued_, max_num_queued_tokens_;
  std::unordered_map<RequestId, int64_t> queued_tokens_;  // of all that live; 0: it has run
  int64_t num_queued_ = 0;
  int64_t num_queued_tokens_ = 0;
  std::string stop_message_;
};

}  // namespace halley
