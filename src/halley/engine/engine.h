// The engine: takes requests, batches them, and calls back with every token. The server, the
// bindings and the command line use it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/constraint/token_constraint.h"
#include "halley/engine/itl_target.h"
#include "halley/engine/mask_job.h"
#include "halley/engine/pooling.h"
#include "halley/engine/precision_stats.h"
#include "halley/engine/request_times.h"
#include "halley/engine/scheduling_policy.h"
#include "halley/engine/step_sizes.h"
#include "halley/models/base/causal_lm.h"
#include "halley/precision/precision_policy.h"
#include "halley/sampling/base/sampling_params.h"
#include "halley/sampling/base/token_choice.h"
#include "halley/slo/slo.h"

namespace halley {

using RequestId = uint64_t;

struct EngineConfig {
  int64_t page_tokens = 16;         // P
  int64_t kv_bytes = 0;             // size of the KV cache; 0: enough for max_num_seqs sequences
                                    // of max_model_len, at most a quarter of the host's memory, or
                                    // what a device has left
  std::optional<KvDType> kv_dtype;  // absent: the model's own
  int64_t max_model_len = 0;        // prompt and output; 0: the model's maximum
  int64_t max_num_seqs = 0;         // running at once; 0: 64 on the host, 256 on a device, but no
                                    // more than max_num_batched_tokens where that is given
  int64_t max_num_batched_tokens = 0;  // rows of one step: decodes first, the rest prefill chunks;
                                       // 0: 512 on the host, 8192 on a device, but at least
                                       // max_num_seqs
  ItlTarget itl_target = {};           // limits the prefill rows of steps, for requests that decode
  int64_t max_num_queued = 1024;       // requests that wait and never ran
  int64_t max_num_queued_tokens = 0;   // their prompts' tokens, but an empty queue takes any
                                       // request; 0: max_num_queued * max_model_len
  int64_t num_mask_threads = 0;        // that make the masks of constraints; 0: a quarter of the
                                       // processors, 1 to 8
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFcfs;
  bool has_prefix_caching = true;  // full pages are kept and used again for equal beginnings
  /// The mode of requests that do not say theirs; kLow and kAuto need a model in two precisions.
  PrecisionMode precision = PrecisionMode::kFull;
  Slo slo = {};  // limits of requests that do not give theirs; e2el is not held
  /// Runs on the engine's thread at every switch, and returns within 1 ms; may be empty.
  std::function<void(const PrecisionSwitch&)> on_precision_switch = {};
  /// Runs once, as the last of the engine's thread, if an error of the model ended all requests and
  /// the engine; may be empty.
  std::function<void(const std::string& error)> on_failure = {};
};

struct GenerateRequest {
  std::vector<int32_t> prompt_ids;
  SamplingParams sampling;
  int32_t priority = 0;  // lower first; ignored by kFcfs
  /// Requests share cached prefixes only if their salts are equal; at most 256 bytes.
  std::string cache_salt = {};
  std::optional<TimePoint> deadline = {};  // by the engine's clock; ends with kDeadline
  /// The constraint on the output; null: none. Made for this engine's tokenizer and EOS ids.
  /// The request ends with kStop as soon as only EOS may follow, and EOS ends it even with
  /// ignore_eos, unless the constraint does not say where the output ends.
  std::shared_ptr<const CompiledConstraint> constraint = {};
  /// kFull: all its tokens, cached ones of the prompt too, are computed in the best precision; kLow
  /// and kAuto: in any; steps of requests with kLow alone run in the lowest. Absent: the engine's.
  std::optional<PrecisionMode> precision = {};
  Slo slo = {};  // each absent limit is the engine's
  /// Is added to the model's linear layers for this request; null: none. Its prefixes are shared
  /// with requests of the same adapter alone.
  std::shared_ptr<const Adapter> adapter = {};
  /// The request generates nothing: it ends with its prompt, and `sampling` is not used. Its one
  /// event has kStop and `pooled`. Without a constraint and log probabilities of the prompt.
  std::optional<Pooling> pooling = {};
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kDeadline, kError };
const char* name_of(FinishReason reason);  // "stop", "length", "cancelled", "deadline", "error"

/// Log probabilities of a prompt token, given those before it.
struct PromptLogprob {
  int32_t token_id = 0;
  std::optional<float> logprob;   // natural logarithm; absent for the first token only
  std::vector<TokenLogprob> top;  // the best num_prompt_logprobs, most probable first
};

/// One callback. A finishing event may carry the last token, or no token (cancelled, error).
struct TokenEvent {
  std::optional<int32_t> token_id;
  std::string text;     // text that became final with this token; may be empty
  bool is_low = false;  // a step in another precision than the best gave the token's logits
  std::optional<TokenLogprob> logprob;  // of the chosen token, before temperature and penalties
  std::vector<TokenLogprob> top_logprobs;
  std::optional<FinishReason> finish_reason;   // only on the last event
  bool is_over_constraint_limits = false;      // with kError: constraint_limit_error() is why
  std::string stop_reason;                     // the stop string or token that ended it, if any
  std::string error;                           // for kError
  std::vector<PromptLogprob> prompt_logprobs;  // one a prompt token, on the first token's event,
                                               // if requested
  std::vector<float> pooled;                   // of a request with `pooling`: [hidden_size], or one
                                               // logit for each of its token_ids
  std::optional<RequestTimes> times;           // only on the last event
};
using TokenCallback = std::function<void(const TokenEvent&)>;

/// The error of a request whose output needs more work or memory for a mask than the constraint's
/// limits allow. `where` names the constraint, as whoever asked for it does.
std::string constraint_limit_error(const std::string& where);

enum class Submit : uint8_t { kQueued, kQueueFull, kTooLong, kInvalid, kStopped };

struct SubmitResult {
  Submit status = Submit::kQueued;
  std::string message;  // why not, unless kQueued
};

/// Current values first, then totals since the start.
struct EngineStats {
  int64_t num_running = 0, num_waiting = 0;  // preempted ones, and those without rows, wait too
  int64_t num_queued = 0;                    // waiting ones that never ran
  int64_t num_queued_tokens = 0;             // and their prompts' tokens
  int64_t num_pages = 0;
  int64_t num_free_pages = 0;        // that no sequence uses; cached ones too
  int64_t num_cached_pages = 0;      // free pages that the prefix cache can find
  double itl_target_seconds = 0;     // of a step with decodes; 0: none, or not measured yet
  int64_t num_prefill_rows_max = 0;  // of the last step that it limited; 0: none

  int64_t num_steps = 0, num_preemptions = 0;
  int64_t num_prompt_tokens = 0;         // of requests that got their first token
  int64_t num_cached_prompt_tokens = 0;  // of them from the prefix cache
  int64_t num_output_tokens = 0;
  int64_t num_prefix_queries = 0, num_prefix_hits = 0;  // tokens looked up, and found
  StepSizes step_sizes;
  PrecisionStats precision;
};

/// Owns one thread that runs the model and all scheduling state.
class Engine {
 public:
  /// `tokenizer` may be null: then events carry no text, and stop strings are rejected.
  /// `eos_token_ids` end a request unless it ignores them.
  /// Throws InputError or DeviceError if the configuration does not fit.
  /// Any thread may read `clock`; the default is std::chrono::steady_clock. `masks` makes the masks
  /// of constraints; the default has num_mask_threads threads.
  Engine(std::unique_ptr<CausalLm> model, std::shared_ptr<const Tokenizer> tokenizer,
         std::vector<int32_t> eos_token_ids, const EngineConfig& config, EngineClock clock = {},
         std::unique_ptr<MaskExecutor> masks = {});
  /// Cancels all requests and waits for the thread.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues one request for generation and returns at once.
  ///
  /// Thread-safe; may be called from inside `on_token`. `on_token` runs on the engine's thread,
  /// once per token in order, the last time with finish_reason set. It must return within 1 ms,
  /// since other requests wait for it, and must not throw.
  ///
  /// @param request  1 <= number of prompt tokens < max_model_len
  /// @param id       unique among live requests; the handle for cancel()
  /// @return kQueued, or why not; then nothing was queued and `on_token` is never called.
  [[nodiscard]] SubmitResult submit(GenerateRequest request, RequestId id,
                                    TokenCallback on_token) noexcept;

  /// Cancels a request; its last event says kCancelled. Unknown ids are ignored.
  /// Thread-safe.
  void cancel(RequestId id) noexcept;

  /// The result that submit() would give now for a valid request with a prompt of this many tokens.
  /// Takes a short lock only, so that a server can reject before it tokenizes. With 0 tokens
  /// (length unknown) only a full queue is reported. Thread-safe.
  [[nodiscard]] SubmitResult would_admit(int64_t num_prompt_tokens) const noexcept;

  /// From now on submit() returns kStopped. Accepted requests continue; those that have not ended
  /// at `limit` by the engine's clock are cancelled before the next step. Returns at once; a later
  /// call sets another limit. Thread-safe.
  void drain(TimePoint limit) noexcept;

  /// Waits until no request lives and no callback runs. Any thread but the engine's.
  void wait_until_idle() const;

  /// Thread-safe.
  EngineStats stats() const;
  const EngineConfig& config() const;  // with the defaults filled in
  /// The size of pooled hidden states; 0: the model gives none.
  int64_t hidden_size() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
