// The engine: takes requests, batches them, and calls back with every token. What the server, the
// bindings and the command line use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/constraint/token_constraint.h"
#include "halley/engine/sampling_params.h"
#include "halley/engine/token_logprob.h"
#include "halley/models/base/causal_lm.h"

namespace halley {

using RequestId = uint64_t;

struct EngineConfig {
  int64_t page_tokens = 16;         // P
  int64_t kv_bytes = 0;             // budget of the KV cache; 0: room for max_num_seqs sequences
                                    // of max_model_len, at most a quarter of the memory
  std::optional<KvDType> kv_dtype;  // absent: the model's own
  int64_t max_model_len = 0;        // prompt and output; 0: the model's maximum
  int64_t max_num_seqs = 64;        // running at once
  int64_t max_num_batched_tokens = 512;  // rows of one step: decodes first, the rest prefill chunks
  int64_t max_num_queued = 1024;         // waiting requests
};

struct GenerateRequest {
  std::vector<int32_t> prompt_ids;
  SamplingParams sampling;
  /// What the output must look like; null: anything. Made for this engine's tokenizer and EOS ids.
  /// The request ends with kStop as soon as nothing but EOS may follow, and EOS ends it whatever
  /// ignore_eos says.
  std::shared_ptr<const CompiledConstraint> constraint = {};
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };
const char* name_of(FinishReason reason);  // "stop", "length", "cancelled", "error"

/// One callback. A finishing event may carry the last token, or no token (cancelled, error).
struct TokenEvent {
  std::optional<int32_t> token_id;
  std::string text;                     // final text that this token made certain; may be empty
  std::optional<TokenLogprob> logprob;  // of the chosen token, before temperature and penalties
  std::vector<TokenLogprob> top_logprobs;
  std::optional<FinishReason> finish_reason;  // set on the last event alone
  std::string stop_reason;                    // the stop string or token that ended it, if any
  std::string error;                          // for kError
};
using TokenCallback = std::function<void(const TokenEvent&)>;

enum class Submit : uint8_t { kQueued, kQueueFull, kTooLong, kInvalid, kStopped };

struct SubmitResult {
  Submit status = Submit::kQueued;
  std::string message;  // why not, for all but kQueued
};

struct EngineStats {
  int64_t num_running = 0, num_waiting = 0;
  int64_t num_pages = 0, num_free_pages = 0;
  int64_t num_steps = 0, num_prompt_tokens = 0, num_output_tokens = 0, num_preemptions = 0;
};

/// Owns one thread that runs the model and all scheduling state.
class Engine {
 public:
  /// `tokenizer` may be null: then events carry no text, and stop strings are refused.
  /// `eos_token_ids` end a request unless it ignores them.
  /// Throws InputError or DeviceError where the configuration does not fit.
  Engine(std::unique_ptr<CausalLm> model, std::shared_ptr<const Tokenizer> tokenizer,
         std::vector<int32_t> eos_token_ids, const EngineConfig& config);
  /// Cancels what is running and waits for it.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues one request for generation and returns at once.
  ///
  /// Thread-safe; may be called from inside `on_token`. `on_token` runs on the engine's thread,
  /// once per token in order, the last time with finish_reason set. It must return within 1 ms: the
  /// other requests wait for it, and must not throw.
  ///
  /// @param request  1 <= number of prompt tokens < max_model_len
  /// @param id       unique among live requests; the handle for cancel()
  /// @return kQueued, or why not; then nothing was queued and `on_token` is never called.
  [[nodiscard]] SubmitResult submit(GenerateRequest request, RequestId id,
                                    TokenCallback on_token) noexcept;

  /// Asks for the end of a request; its last event says kCancelled. Unknown ids are ignored.
  /// Thread-safe.
  void cancel(RequestId id) noexcept;

  /// Thread-safe.
  EngineStats stats() const;
  const EngineConfig& config() const;  // with the defaults filled in

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
