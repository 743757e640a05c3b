#include "halley/python/session.h"

#include <utility>
#include <variant>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/models/all/plan_json.h"
#include "halley/models/lora/load_adapter.h"
#include "halley/server/app/adapter_table.h"
#include "halley/server/app/app_config.h"
#include "halley/server/app/engine_bridge.h"
#include "halley/server/openai/api_error.h"

namespace halley::python {

Session::Session(const SessionOptions& options) {
  const ModelOptions model_options = model_options_of(options);
  const EngineConfig engine_config = engine_config_of(options);
  const auto folder = check_model_dir(model_options.model);
  tokenizer_ = load_tokenizer(folder);
  // Outputs have the model's text as it is, reasoning too.
  format_ = load_chat_format(folder, options.chat_template,
                             {.tool_calls = options.tool_call_parser, .reasoning = "none"});
  loaded_ = load_model_of(model_options);
  why_no_adapters_ = why_no_adapters(*loaded_.model);
  if (options.enable_lora && !why_no_adapters_.empty()) {
    throw UnsupportedError("enable_lora: " + why_no_adapters_);
  }
  rules_.vocab_size = loaded_.model->shape().vocab_size;
  format_.set_rules(rules_);
  apply_settings(loaded_.generation.sampling, rules_.sampling);
  const std::vector<int32_t> eos_ids = loaded_.generation.eos_token_ids;
  constraints_ =
      std::make_unique<ConstraintCompiler>(tokenizer_, eos_ids, format_.dialect(),
                                           static_cast<size_t>(AppConfig{}.constraint_bytes_max));
  engine_ = std::make_unique<Engine>(std::move(loaded_.model), tokenizer_, eos_ids, engine_config);
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

bool Session::has_adapter(int64_t number, const std::string& folder) const {
  const std::lock_guard lock(adapters_mutex_);
  const auto found = adapters_.find(number);
  if (found == adapters_.end()) {
    if (adapters_.size() < AdapterTable::kAdaptersMax) return false;
    throw InputError(str("lora_request: expected at most ", AdapterTable::kAdaptersMax,
                         " adapters at a time, got another one. Call remove_lora() first."));
  }
  if (found->second.folder == folder) return true;
  throw InputError(str("lora_request: expected a lora_int_id of its own for ", quote(folder),
                       ", got ", number, ", which is that of ", quote(found->second.folder),
                       ". Choose another one, or call remove_lora() first."));
}

void Session::add_adapter(int64_t number, const std::string& name, const std::string& folder) {
  if (!why_no_adapters_.empty()) throw UnsupportedError("lora_request: " + why_no_adapters_);
  if (has_adapter(number, folder)) return;
  // Without the lock: other requests go on meanwhile. Another thread may load it too.
  NumberedAdapter loaded = {folder, load_adapter(folder, loaded_.plan.config, name)};
  if (has_adapter(number, folder)) return;
  const std::lock_guard lock(adapters_mutex_);
  adapters_.try_emplace(number, std::move(loaded));
}

bool Session::remove_adapter(int64_t number) {
  const std::lock_guard lock(adapters_mutex_);
  return adapters_.erase(number) > 0;
}

std::shared_ptr<const Adapter> Session::find_adapter(std::optional<int64_t> number) const {
  if (!number) return nullptr;
  const std::lock_guard lock(adapters_mutex_);
  const auto found = adapters_.find(*number);
  if (found != adapters_.end()) return found->second.adapter;
  throw InputError(str("lora_request: expected an adapter that is loaded, got the lora_int_id ",
                       *number, " of none."));
}

SubmittedPrompt Session::submit(std::string_view body, const RequestHandle& handle,
                                const std::shared_ptr<EventQueue>& queue) {
  ApiRequest request =
      parse_request(body, handle.is_chat ? ApiEndpoint::kChat : ApiEndpoint::kCompletions, rules_);
  request.sampling.num_prompt_logprobs = handle.num_prompt_logprobs;
  SubmittedPrompt prompt;
  prompt.token_ids = encode(request, prompt.text);
  const auto constraint = constraints_->compile(request);
  const auto adapter = find_adapter(handle.adapter);
  const std::string field = is_constrained(request) ? constraint_field(request) : "";
  // Without a limit the context is one.
  const int64_t max_tokens = request.max_tokens.value_or(engine_->config().max_model_len);
  std::vector<RequestId> queued;
  for (int64_t i = 0; i < request.n; ++i) {
    const SequenceId sequence = {.id = next_id_++, .request = handle.number, .index = i};
    SequencePlan plan;
    plan.prompt_ids = prompt.token_ids;
    plan.max_tokens = max_tokens;
    plan.choice_index = i;
    plan.constraint = constraint;
    queue->open(sequence);
    GenerateRequest generated = make_generate_request(request, format_.dialect(), std::move(plan));
    generated.adapter = adapter;
    const SubmitResult result = engine_->submit(
        std::move(generated), sequence.id,
        [queue, sequence, field](const TokenEvent& event) { queue->add(sequence, event, field); });
    if (result.status == Submit::kQueued) {
      queued.push_back(sequence.id);
      continue;
    }
    queue->close(sequence.id);
    for (const RequestId id : queued) engine_->cancel(id);
    if (result.status == Submit::kStopped) throw DeviceError(result.message);
    throw InputError(result.message);
  }
  prompt.num_sequences = request.n;
  return prompt;
}

std::map<std::string, int64_t> Session::stats() const {
  const EngineStats stats = engine_->stats();
  return {{"num_running", stats.num_running},
          {"num_waiting", stats.num_waiting},
          {"num_queued", stats.num_queued},
          {"num_queued_tokens", stats.num_queued_tokens},
          {"num_pages", stats.num_pages},
          {"num_free_pages", stats.num_free_pages},
          {"num_cached_pages", stats.num_cached_pages},
          {"num_steps", stats.num_steps},
          {"num_preemptions", stats.num_preemptions},
          {"num_prompt_tokens", stats.num_prompt_tokens},
          {"num_cached_prompt_tokens", stats.num_cached_prompt_tokens},
          {"num_output_tokens", stats.num_output_tokens},
          {"num_prefix_queries", stats.num_prefix_queries},
          {"num_prefix_hits", stats.num_prefix_hits}};
}

std::string Session::inspect() const { return to_json(loaded_.plan).dump(); }

RequestStream::RequestStream(std::shared_ptr<Session> session, bool is_whole)
    : session_(std::move(session)), queue_(std::make_shared<EventQueue>(is_whole)) {}

RequestStream::~RequestStream() { cancel(std::nullopt); }

void RequestStream::cancel(std::optional<uint64_t> request) {
  for (const RequestId id : queue_->live_ids(request)) session_->engine().cancel(id);
}

SubmittedPrompt RequestStream::submit(std::string_view body, const RequestHandle& handle) {
  return session_->submit(body, handle, queue_);
}

}  // namespace halley::python
