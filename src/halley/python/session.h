// A loaded model with its engine, which takes requests as the bodies of the OpenAI API.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/engine/engine.h"
#include "halley/models/options/model_options.h"
#include "halley/python/event_queue.h"
#include "halley/server/app/chat_format.h"
#include "halley/server/app/output_constraint.h"
#include "halley/server/openai/request_parser.h"

namespace halley::python {

/// The arguments of halley.LLM, with its names. Session's constructor checks them.
struct SessionOptions {
  std::string model;
  std::string chat_template;    // a file; empty: the model's own
  std::string device = "auto";  // HALLEY_DEVICE replaces "auto"
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string precision = "full";
  int64_t max_model_len = 0, max_num_seqs = 0, max_num_batched_tokens = 0;  // 0: EngineConfig's
  int64_t kv_cache_memory_bytes = 0;
  int tensor_parallel_size = 1, pipeline_parallel_size = 1;
  int threads = 0;
  double gpu_memory_utilization = 0.9;
  bool enable_prefix_caching = true;
  bool enable_expert_parallel = false;
};

/// A prompt whose sequences the engine has.
struct SubmittedPrompt {
  std::string text;  // as given, or as the chat template renders it; empty for token ids
  std::vector<int32_t> token_ids;
  std::vector<RequestId> ids;  // one for each of the n sequences
};

/// Thread-safe once it is constructed.
class Session {
 public:
  /// Loads the model. Throws InputError, CheckpointError, UnsupportedError or DeviceError.
  explicit Session(const SessionOptions& options);

  /// `body` is that of /v1/completions with one prompt, or of /v1/chat/completions.
  /// `num_prompt_logprobs` as SamplingParams has it. Throws ApiError or InputError; nothing was
  /// queued then.
  SubmittedPrompt submit(std::string_view body, bool is_chat, int num_prompt_logprobs,
                         const std::shared_ptr<EventQueue>& queue);

  Engine& engine() { return *engine_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// The loader's remarks on the checkpoint.
  const std::vector<std::string>& warnings() const { return loaded_.plan.warnings; }
  const std::string& device_name() const { return device_name_; }

 private:
  std::vector<int32_t> encode(const ApiRequest& request, std::string& text) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatFormat format_;
  LoadedModel loaded_;
  std::string device_name_;
  RequestRules rules_;
  std::unique_ptr<ConstraintCompiler> constraints_;
  std::atomic<RequestId> next_id_{1};
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

  SubmittedPrompt submit(std::string_view body, bool is_chat, int num_prompt_logprobs);
  void cancel(RequestId id) { session_->engine().cancel(id); }
  void cancel_all();
  EventQueue& queue() { return *queue_; }

 private:
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<EventQueue> queue_;
  std::mutex mutex_;
  std::vector<RequestId> ids_;  // all that were submitted; the engine ignores those that have ended
};

}  // namespace halley::python
