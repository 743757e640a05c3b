#include "halley/python/session.h"

#include <cmath>
#include <utility>
#include <variant>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/precision/precision_policy.h"
#include "halley/server/app/app_config.h"
#include "halley/server/app/engine_bridge.h"
#include "halley/server/openai/api_error.h"

namespace halley::python {
namespace {

// Prompts of one call may be many, and its caller has their memory already.
constexpr int64_t kQueuedMax = int64_t{1} << 20;
constexpr int64_t kCountMax = int64_t{1} << 30;
constexpr int64_t kThreadsMax = 1024;

void check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return;
  throw InputError(str(name, ": expected ", min, " to ", max, ", got ", value, "."));
}

void check_options(const SessionOptions& options) {
  if (const std::string error = device_name_error(options.device); !error.empty()) {
    throw InputError(str("device: ", error, "."));
  }
  check_range("max_model_len", options.max_model_len, 0, kCountMax);
  check_range("max_num_seqs", options.max_num_seqs, 0, kCountMax);
  check_range("max_num_batched_tokens", options.max_num_batched_tokens, 0, kCountMax);
  check_range("kv_cache_memory_bytes", options.kv_cache_memory_bytes, 0, int64_t{1} << 50);
  check_range("tensor_parallel_size", options.tensor_parallel_size, 1, kRanksMax);
  check_range("pipeline_parallel_size", options.pipeline_parallel_size, 1, kRanksMax);
  check_range("threads", options.threads, 0, kThreadsMax);
  const double part = options.gpu_memory_utilization;
  if (!std::isfinite(part) || part <= 0 || part > 1) {
    throw InputError(str("gpu_memory_utilization: expected above 0, at most 1, got ", part, "."));
  }
}

ModelOptions model_options_of(const SessionOptions& options) {
  ModelOptions model;
  model.model = options.model;
  model.device = options.device;
  if (model.device == "auto") model.device = env_string("HALLEY_DEVICE").value_or("auto");
  model.dtype = options.dtype;
  model.gpu_memory_utilization = options.gpu_memory_utilization;
  model.threads = options.threads;
  model.max_model_len = options.max_model_len;
  model.ranks.tensor_parallel_size = options.tensor_parallel_size;
  model.ranks.pipeline_parallel_size = options.pipeline_parallel_size;
  model.ranks.has_whole_experts = options.enable_expert_parallel;
  return model;
}

LoadedModel load(const SessionOptions& options) {
  const ModelOptions model = model_options_of(options);
  const int num_ranks = num_thread_ranks(model.ranks);
  prepare_thread_ranks(num_ranks);
  return load_model_by(
      model, choose_device(model.device), num_ranks,
      [&](ExecContext& context, const ModelFiles& files, const LoadOptions& load_options) {
        return load_here(context, model.ranks, files, {}, load_options);
      });
}

EngineConfig engine_config_of(const SessionOptions& options) {
  EngineConfig config;
  config.max_num_queued = kQueuedMax;
  config.kv_bytes = options.kv_cache_memory_bytes;
  config.max_model_len = options.max_model_len;
  config.max_num_seqs = options.max_num_seqs;
  config.max_num_batched_tokens = options.max_num_batched_tokens;
  config.has_prefix_caching = options.enable_prefix_caching;
  if (options.kv_cache_dtype != "auto") {
    config.kv_dtype = kv_dtype_from_name(options.kv_cache_dtype);
    if (!config.kv_dtype) {
      throw InputError(str("kv_cache_dtype: expected auto, f32, f16, bf16, int8, int4 or fp8, got ",
                           quote(options.kv_cache_dtype), "."));
    }
  }
  const auto mode = precision_mode_from_name(options.precision);
  if (!mode) {
    throw InputError(
        str("precision: expected full, low or auto, got ", quote(options.precision), "."));
  }
  config.precision = *mode;
  return config;
}

SessionOptions checked(const SessionOptions& options) {
  check_options(options);
  static_cast<void>(engine_config_of(options));
  return options;
}

}  // namespace

Session::Session(const SessionOptions& options) {
  const SessionOptions used = checked(options);
  const auto folder = check_model_dir(used.model);
  tokenizer_ = load_tokenizer(folder);
  format_ = load_chat_format(folder, used.chat_template, std::nullopt);
  loaded_ = load(used);
  device_name_ = loaded_.model->device_name();
  rules_.vocab_size = loaded_.model->shape().vocab_size;
  rules_.template_reads_effort = format_.reads_reasoning_effort();
  apply_settings(loaded_.generation.sampling, rules_.sampling);
  const std::vector<int32_t> eos_ids = loaded_.generation.eos_token_ids;
  constraints_ =
      std::make_unique<ConstraintCompiler>(tokenizer_, eos_ids, format_.dialect(),
                                           static_cast<size_t>(AppConfig{}.constraint_bytes_max));
  engine_ = std::make_unique<Engine>(std::move(loaded_.model), tokenizer_, eos_ids,
                                     engine_config_of(used));
}

std::vector<int32_t> Session::encode(const ApiRequest& request, std::string& text) const {
  if (request.endpoint == ApiEndpoint::kChat) {
    if (!format_.has_template()) {
      throw InputError(
          "chat: expected a model with a chat template, which this one lacks. Use generate(), or "
          "give LLM a chat_template.");
    }
    text = format_.render(request);
    return tokenizer_->encode(text, request.adds_special_tokens.value_or(false));
  }
  if (request.prompts.size() != 1) {
    throw InputError(str("prompt: expected one, got ", request.prompts.size(), "."));
  }
  if (const auto* given = std::get_if<std::string>(&request.prompts.front())) {
    text = *given;
    return tokenizer_->encode(text, request.adds_special_tokens.value_or(true));
  }
  return std::get<std::vector<int32_t>>(request.prompts.front());
}

SubmittedPrompt Session::submit(std::string_view body, bool is_chat, int num_prompt_logprobs,
                                const std::shared_ptr<EventQueue>& queue) {
  ApiRequest request =
      parse_request(body, is_chat ? ApiEndpoint::kChat : ApiEndpoint::kCompletions, rules_);
  request.sampling.num_prompt_logprobs = num_prompt_logprobs;
  SubmittedPrompt prompt;
  prompt.token_ids = encode(request, prompt.text);
  const auto constraint = constraints_->compile(request);
  const std::string field = is_constrained(request) ? constraint_field(request) : "";
  // Without a limit the context is one.
  const int64_t max_tokens = request.max_tokens.value_or(engine_->config().max_model_len);
  for (int64_t i = 0; i < request.n; ++i) {
    const RequestId id = next_id_++;
    SequencePlan plan;
    plan.prompt_ids = prompt.token_ids;
    plan.max_tokens = max_tokens;
    plan.choice_index = i;
    plan.constraint = constraint;
    const SubmitResult result = engine_->submit(
        make_generate_request(request, format_.dialect(), std::move(plan)), id,
        [queue, id, field](const TokenEvent& event) { queue->add(id, event, field); });
    if (result.status == Submit::kQueued) {
      prompt.ids.push_back(id);
      continue;
    }
    for (const RequestId queued : prompt.ids) engine_->cancel(queued);
    if (result.status == Submit::kStopped) throw DeviceError(result.message);
    throw InputError(result.message);
  }
  return prompt;
}

RequestStream::RequestStream(std::shared_ptr<Session> session, bool is_whole)
    : session_(std::move(session)), queue_(std::make_shared<EventQueue>(is_whole)) {}

RequestStream::~RequestStream() { cancel_all(); }

void RequestStream::cancel_all() {
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ids_) cancel(id);
}

SubmittedPrompt RequestStream::submit(std::string_view body, bool is_chat,
                                      int num_prompt_logprobs) {
  SubmittedPrompt prompt = session_->submit(body, is_chat, num_prompt_logprobs, queue_);
  const std::lock_guard lock(mutex_);
  ids_.insert(ids_.end(), prompt.ids.begin(), prompt.ids.end());
  return prompt;
}

}  // namespace halley::python
