// A loaded model with its engine, which takes requests as the bodies of the OpenAI API.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/engine/engine.h"
#include "halley/models/options/model_options.h"
#include "halley/python/event_queue.h"
#include "halley/python/session_options.h"
#include "halley/server/app/chat_format.h"
#include "halley/server/app/output_constraint.h"
#include "halley/server/openai/request_parser.h"

namespace halley::python {

/// The part of a request that is not in its body.
struct RequestHandle {
  uint64_t number = 0;  // its caller's; SequenceId::request of its deltas
  bool is_chat = false;
  int num_prompt_logprobs = -1;         // as SamplingParams has it
  std::optional<int64_t> adapter = {};  // the number of Session::add_adapter()
};

/// A prompt whose sequences the engine has.
struct SubmittedPrompt {
  std::string text;  // as given, or as the chat template renders it; empty for token ids
  std::vector<int32_t> token_ids;
  int64_t num_sequences = 0;
};

/// Thread-safe once it is constructed.
class Session {
 public:
  /// Loads the model. Throws InputError, CheckpointError, UnsupportedError or DeviceError.
  explicit Session(const SessionOptions& options);

  /// Loads the LoRA adapter in `folder`, unless the number has it already. Throws InputError where
  /// the number has another one or there are too many, UnsupportedError where the model takes none,
  /// and as load_adapter().
  void add_adapter(int64_t number, const std::string& name, const std::string& folder);
  /// Requests keep the adapter with which they began. Returns whether the number had one.
  bool remove_adapter(int64_t number);

  /// `body` is that of /v1/completions with one prompt, or of /v1/chat/completions.
  /// Throws ApiError or InputError; nothing was queued then.
  SubmittedPrompt submit(std::string_view body, const RequestHandle& handle,
                         const std::shared_ptr<EventQueue>& queue);

  /// The engine's counters by their names in EngineStats.
  std::map<std::string, int64_t> stats() const;
  /// The plan of the loaded model, as `halley inspect --json` prints it.
  std::string inspect() const;

  Engine& engine() { return *engine_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// The loader's remarks on the checkpoint.
  const std::vector<std::string>& warnings() const { return loaded_.plan.warnings; }

 private:
  struct NumberedAdapter {
    std::string folder;
    std::shared_ptr<const Adapter> adapter;
  };

  std::vector<int32_t> encode(const ApiRequest& request, std::string& text) const;
  /// Whether the number has the folder's adapter. Throws as add_adapter().
  bool has_adapter(int64_t number, const std::string& folder) const;
  std::shared_ptr<const Adapter> find_adapter(std::optional<int64_t> number) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatFormat format_;
  LoadedModel loaded_;
  RequestRules rules_;
  std::unique_ptr<ConstraintCompiler> constraints_;
  std::atomic<RequestId> next_id_{1};
  std::string why_no_adapters_;
  mutable std::mutex adapters_mutex_;
  std::map<int64_t, NumberedAdapter> adapters_;
  std::unique_ptr<Engine> engine_;  // ends before what it uses
};

/// Requests of one caller. They end with it: the destructor cancels those that live. Thread-safe.
class RequestStream {
 public:
  /// `is_whole` as EventQueue has it.
  RequestStream(std::shared_ptr<Session> session, bool is_whole);
  ~RequestStream();
  RequestStream(const RequestStream&) = delete;
  RequestStream& operator=(const RequestStream&) = delete;

  SubmittedPrompt submit(std::string_view body, const RequestHandle& handle);
  /// Ends the live sequences of a request, or of all.
  void cancel(std::optional<uint64_t> request);
  EventQueue& queue() { return *queue_; }

 private:
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<EventQueue> queue_;
};

}  // namespace halley::python
