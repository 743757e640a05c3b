// Counts the live and the waiting requests of an engine, and decides whether one more is admitted.
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
  /// `config` has its defaults filled in.
  explicit RequestLedger(const EngineConfig& config);

  /// kQueued, or why a request with this many prompt tokens is rejected now: kStopped, kTooLong,
  /// kQueueFull. 0 tokens: only the number of requests counts.
  SubmitResult why_rejected(int64_t num_prompt_tokens) const;

  /// Adds an accepted request; its id is not in use.
  void add(RequestId id, int64_t num_prompt_tokens);
  /// The request runs for the first time.
  void start(RequestId id);
  /// Removes the request.
  void end(RequestId id);

  /// Rejects all requests from now on; the last reason counts.
  void stop(const std::string& message) { stop_message_ = message; }
  bool is_stopped() const { return !stop_message_.empty(); }

  bool is_live(RequestId id) const { return queued_tokens_.contains(id); }
  int64_t num_live() const { return static_cast<int64_t>(queued_tokens_.size()); }
  int64_t num_queued() const { return num_queued_; }
  int64_t num_queued_tokens() const { return num_queued_tokens_; }

 private:
  const int64_t max_model_len_, max_num_queued_, max_num_queued_tokens_;
  std::unordered_map<RequestId, int64_t> queued_tokens_;  // of all live requests; 0: has run
  int64_t num_queued_ = 0;
  int64_t num_queued_tokens_ = 0;
  std::string stop_message_;
};

}  // namespace halley
