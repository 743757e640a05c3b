// A queue of news about requests, from the engine's thread to one that waits for it.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "halley/engine/engine.h"

namespace halley::python {

/// One of the n sequences of a request.
struct SequenceId {
  RequestId id = 0;      // the engine's
  uint64_t request = 0;  // its caller's number of the request
  int64_t index = 0;     // among the n
};

/// The events of one sequence since the last look, joined.
struct RequestDelta {
  SequenceId sequence;
  std::vector<int32_t> token_ids;
  std::string text;
  std::vector<TokenLogprob> logprobs;                   // one a token, if requested
  std::vector<std::vector<TokenLogprob>> top_logprobs;  // one list a token, if requested
  std::vector<PromptLogprob> prompt_logprobs;           // one a prompt token, once, if requested
  std::optional<FinishReason> finish_reason;
  std::string stop_reason;
  std::string error;                  // for kError
  bool is_input_error = false;        // the request is the reason for `error`
  std::optional<RequestTimes> times;  // at the end
};

/// Thread-safe. Never calls into Python, so that the engine's thread needs no lock of it.
class EventQueue {
 public:
  /// `is_whole`: a request shows once, at its end. Throws DeviceError where the system has no file
  /// descriptor left.
  explicit EventQueue(bool is_whole);
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  /// A sequence lives from here to its last event, or to close().
  void open(const SequenceId& sequence);
  void close(RequestId id);
  /// The sequences that live of one request, or of all.
  std::vector<RequestId> live_ids(std::optional<uint64_t> request) const;

  /// Adds an event; takes microseconds. `field` names the request's constraint.
  void add(const SequenceId& sequence, const TokenEvent& event, const std::string& field);

  /// Waits until there is news, a signal or the end of the time.
  void wait(int milliseconds) const;
  /// All news, in order of arrival; empty: none. Does not wait.
  std::vector<RequestDelta> take();

  /// Readable while there is news, for event loops.
  int file_descriptor() const { return file_descriptor_; }

 private:
  const bool is_whole_;
  const int file_descriptor_;

  mutable std::mutex mutex_;  // guards the members below
  std::unordered_map<RequestId, RequestDelta> deltas_;
  std::vector<RequestId> ready_;                  // of deltas_
  std::unordered_map<RequestId, uint64_t> live_;  // to the number of the request
};

}  // namespace halley::python
