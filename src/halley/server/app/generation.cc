#include "halley/server/app/generation.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <span>
#include <utility>

#include "halley/base/str.h"
#include "halley/server/app/http_answers.h"
#include "halley/server/openai/api_id.h"

namespace halley {
namespace {

constexpr int kRetryAfterS = 1;
constexpr int64_t kCompletionTokens = 16;  // OpenAI's default of max_tokens
// Freeing more takes longer than the engine's thread and those of the HTTP server should.
constexpr size_t kFreedAtOnceBytes = size_t{1} << 20;
// A prompt's log probabilities come in one event; in a stream they wait as several, so that no turn
// of the response thread is long.
constexpr size_t kPromptTokensOfEvent = 32;

ServerTime after(ServerTime start, double seconds) {
  return start +
         std::chrono::duration_cast<ServerTime::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Generation::Generation(AppContext& context, std::shared_ptr<HttpExchange> exchange,
                       ApiEndpoint endpoint, const ChatApi* api,
                       std::unique_ptr<Admission> admission)
    : context_(context),
      exchange_(std::move(exchange)),
      endpoint_(endpoint),
      api_(api),
      arrival_(std::chrono::steady_clock::now()),
      admission_(std::move(admission)),
      watch_(std::make_shared<RequestWatch>()) {}

std::shared_ptr<Generation> Generation::make(AppContext& context,
                                             std::shared_ptr<HttpExchange> exchange,
                                             ApiEndpoint endpoint, const ChatApi* api,
                                             std::unique_ptr<Admission> admission) {
  const auto free = [&context](Generation* generation) {
    std::shared_ptr<Generation> owner(generation, std::default_delete<Generation>());
    if (generation->num_output_bytes() <= kFreedAtOnceBytes) return;
    // False: the server ends, and the job's owner has freed it.
    static_cast<void>(context.answer_thread->push([owner = std::move(owner)] {}));
  };
  return {new Generation(context, std::move(exchange), endpoint, api, std::move(admission)), free};
}

void Generation::preprocess() noexcept {
  guarded([this] {
    watch_->check();
    parse();
    constraint_ = context_.constraints->find(request_);
    const bool is_unconstrained = !is_constrained(request_) && !request_.thinking_token_budget;
    if (constraint_ != nullptr || is_unconstrained) return prepare();
    // Compiling may take long; requests without a format do not wait for it.
    if (!push_preprocessing(context_, PreprocessingLane::kConstraint, exchange_->request(),
                            [self = shared_from_this()] { self->prepare_constrained(); })) {
      throw overloaded("The queue is full. Try again later.", kRetryAfterS);
    }
  });
}

void Generation::prepare_constrained() noexcept {
  guarded([this] {
    watch_->check();
    constraint_ = context_.constraints->compile(request_);
    prepare();
  });
}

void Generation::prepare() {
  tokenize();
  truncate_prompts();
  constraint_ =
      context_.constraints->behind_reasoning(std::move(constraint_), request_, reasoning_);
  if (!constraint_) {
    constraint_ = context_.constraints->of_tokens(request_, context_.config.vocab_size);
  }
  plan_lengths();
  reserve_memory();
  submit();
  admission_.reset();
}

void Generation::guarded(const std::function<void()>& step) noexcept {
  const auto fail_with = [this](const ApiError& error) { fail(error); };
  if (run_step(context_.config, exchange_->request().id, step, fail_with)) return;
  admission_.reset();
}

void Generation::parse() {
  parse_body();
  const double timeout_s = request_.timeout_s.value_or(context_.config.request_timeout_s);
  if (timeout_s > 0) watch_->set_deadline(after(arrival_, timeout_s));
  watch_->check();
  adapter_ = find_model(context_.config, request_.model);
  check_precision(context_, request_);
  report_unenforced(request_);
  report_ignored(context_.config, exchange_->request().id, request_.ignored);
  const int64_t num_queued_max = context_.engine->config().max_num_queued;
  if (request_.num_sequences() > num_queued_max) {
    throw invalid_field(
        "n", str("n: expected n times the number of prompts to be at most ", num_queued_max,
                 ", the length of the queue, got ", request_.num_sequences(), "."));
  }
  // One slot was reserved before the body was read.
  if (!admission_->grow(request_.num_sequences() - 1)) {
    throw overloaded("The queue has no space for all sequences of the request. Try again later.",
                     kRetryAfterS);
  }
}

void Generation::parse_body() {
  const HttpRequest& http = exchange_->request();
  if (api_ == nullptr) {
    request_ = parse_request(http.body, endpoint_, context_.rules);
    return;
  }
  ParsedChat parsed = api_->parse(http.body, {.rules = context_.rules,
                                              .client = client_of(context_.config, http),
                                              .default_model = context_.config.model_names.front(),
                                              .now_s = seconds_since_epoch()});
  request_ = std::move(parsed.request);
  reply_ = std::move(parsed.reply);
}

void Generation::tokenize() {
  if (endpoint_ == ApiEndpoint::kChat) {
    const std::string text = context_.format.render(request_);
    reasoning_ = reasoning_start(context_.format.reasoning(), request_, text);
    prompt_ids_.push_back(encode(text, request_.adds_special_tokens.value_or(false)));
    return;
  }
  for (const ApiPrompt& prompt : request_.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      prompt_ids_.push_back(encode(*text, request_.adds_special_tokens.value_or(true)));
    } else {
      prompt_ids_.push_back(std::get<std::vector<int32_t>>(prompt));
    }
  }
}

// Cuts prompts to their last tokens.
void Generation::truncate_prompts() {
  if (!request_.truncates_prompt_to) return;
  const int64_t num_output_tokens = std::max<int64_t>(1, request_.max_tokens.value_or(1));
  const int64_t num_left = context_.engine->config().max_model_len - num_output_tokens;
  const int64_t num_wanted = *request_.truncates_prompt_to;
  const auto num_kept =
      static_cast<size_t>(std::max<int64_t>(1, num_wanted < 0 ? num_left : num_wanted));
  for (std::vector<int32_t>& ids : prompt_ids_) {
    if (ids.size() > num_kept) ids.erase(ids.begin(), ids.end() - static_cast<int64_t>(num_kept));
  }
}

std::vector<int32_t> Generation::encode(const std::string& text, bool adds_special_tokens) const {
  if (request_.truncates_prompt_to) {
    return encode_text(context_, text, adds_special_tokens, *watch_);
  }
  return encode_prompt(context_, text, adds_special_tokens,
                       endpoint_ == ApiEndpoint::kChat ? "messages" : "prompt", *watch_);
}

void Generation::plan_lengths() {
  const int64_t max_model_len = context_.engine->config().max_model_len;
  for (const auto& ids : prompt_ids_) {
    const auto num_prompt_tokens = static_cast<int64_t>(ids.size());
    if (num_prompt_tokens == 0) {
      throw invalid_field("prompt", "prompt: expected at least one token, got none.");
    }
    const int64_t num_left = max_model_len - num_prompt_tokens;
    const int64_t num_wanted = std::max<int64_t>(1, request_.max_tokens.value_or(1));
    if (num_wanted > num_left) {
      throw ApiError(str("This model's context has ", max_model_len, " tokens; expected a prompt ",
                         "and max_tokens within it, got a prompt of ", num_prompt_tokens,
                         " tokens and ", num_wanted, " to generate."),
                     {.param = endpoint_ == ApiEndpoint::kChat ? "messages" : "prompt",
                      .code = "context_length_exceeded"});
    }
    const int64_t num_default =
        endpoint_ == ApiEndpoint::kChat ? num_left : std::min(kCompletionTokens, num_left);
    max_tokens_.push_back(std::max<int64_t>(1, request_.max_tokens.value_or(num_default)));
  }
}

void Generation::reserve_memory() {
  std::vector<int64_t> num_prompt_tokens;
  for (const auto& ids : prompt_ids_) num_prompt_tokens.push_back(static_cast<int64_t>(ids.size()));
  const auto bytes = most_answer_bytes(
      request_, {.token_text_bytes = static_cast<int64_t>(context_.token_bytes_max),
                 .stream_events_bytes_max = context_.config.stream_events_bytes_max,
                 .num_text_copies = reply_ ? reply_->num_text_copies() : 0,
                 .num_prompt_tokens = num_prompt_tokens,
                 .max_tokens = max_tokens_});
  reservation_.emplace(reserve_answer(context_.answer_bytes, bytes, request_));
  answer_bytes_ = *bytes;
}

void Generation::submit() {
  const bool is_chat = endpoint_ == ApiEndpoint::kChat;
  head_ = {.is_chat = is_chat,
           .id = random_id(is_chat ? "chatcmpl-" : "cmpl-", 24),
           .created_s = seconds_since_epoch(),
           .model = request_.model.empty() ? context_.config.model_names.front() : request_.model};
  if (request_.is_stream && !reply_) chunks_.emplace(head_, request_.includes_usage);
  const ToolDialect dialect = context_.format.dialect();
  for (size_t prompt_index = 0; prompt_index < prompt_ids_.size(); ++prompt_index) {
    for (int64_t i = 0; i < request_.n; ++i) {
      Sequence sequence;
      sequence.prompt_index = prompt_index;
      sequence.is_first_of_prompt = i == 0;
      sequence.writer =
          std::make_unique<ChoiceWriter>(request_, context_.texts, dialect, reasoning_);
      sequences_.push_back(std::move(sequence));
      if (!request_.is_stream) outputs_.emplace_back(request_, reasoning_);
      ids_.push_back(context_.next_id++);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    has_ids_ = true;
  }
  watch_->check();
  for (size_t index = 0; index < ids_.size(); ++index) {
    const size_t prompt_index = sequences_[index].prompt_index;
    SequencePlan plan;
    plan.prompt_ids = prompt_ids_[prompt_index];
    plan.max_tokens = max_tokens_[prompt_index];
    plan.choice_index = static_cast<int64_t>(index) % request_.n;
    plan.constraint = constraint_;
    plan.has_reasoning_marks = reasoning_.dialect != nullptr;
    plan.deadline = watch_->deadline();
    plan.adapter = adapter_;
    TokenCallback observe;
    if (context_.config.make_observer) observe = context_.config.make_observer();
    const SubmitResult result = context_.engine->submit(
        make_generate_request(request_, dialect, std::move(plan)), ids_[index],
        [self = shared_from_this(), index, observe](const TokenEvent& event) {
          if (observe) observe(event);
          self->take_event(index, event);
        });
    admission_->release_one();
    if (result.status != Submit::kQueued) throw submit_error(result);
    // The client may disconnect between two submits.
    if (is_over_) {
      cancel_all();
      return;
    }
  }
  if (request_.is_stream) {
    exchange_->keep_alive(stream_head({}), api_ != nullptr ? api_->silent_event() : kSseComment);
  }
  start_delivery();
}

void Generation::watch_client() {
  exchange_->on_disconnect([weak = weak_from_this(), watch = watch_] {
    watch->set_gone();
    const auto self = weak.lock();
    if (!self) return;
    self->is_over_ = true;
    self->cancel_all();
  });
}

HttpResponse Generation::stream_head(std::string events) const {
  HttpResponse head = stream_response(std::move(events));
  add_ignored(request_.ignored, head);
  return head;
}

void Generation::cancel_all() {
  {
    const std::lock_guard lock(mutex_);
    if (!has_ids_) return;
  }
  for (const RequestId id : ids_) context_.engine->cancel(id);
}

// From here on events are delivered; before, an error of preprocess() can still be the answer.
void Generation::start_delivery() {
  const std::lock_guard lock(mutex_);
  is_preprocessed_ = true;
  schedule_delivery();
}

bool Generation::has_news() const {
  if (!events_.empty()) return true;
  return request_.is_stream ? has_fallen_behind_ : num_complete_outputs_ == outputs_.size();
}

void Generation::schedule_delivery() {
  if (!is_preprocessed_ || is_delivering_ || !has_news()) return;
  push_delivery();
}

void Generation::push_delivery() {
  is_delivering_ = context_.response_thread->push([self = shared_from_this()] { self->deliver(); });
}

void Generation::take_event(size_t index, const TokenEvent& event) {
  if (is_over_) return;
  const std::lock_guard lock(mutex_);
  if (request_.is_stream || is_failure(event)) {
    add_waiting(index, event);
  } else {
    outputs_[index].add(event);
    num_complete_outputs_ += event.finish_reason ? 1 : 0;
  }
  schedule_delivery();
}

void Generation::add_waiting(size_t index, const TokenEvent& event) {
  if (event.prompt_logprobs.empty()) return push_waiting(index, event);
  TokenEvent rest = event;
  std::vector<PromptLogprob> prompt = std::exchange(rest.prompt_logprobs, {});
  for (size_t begin = 0; begin < prompt.size(); begin += kPromptTokensOfEvent) {
    const auto part =
        std::span(prompt).subspan(begin, std::min(kPromptTokensOfEvent, prompt.size() - begin));
    TokenEvent scored;
    scored.prompt_logprobs.assign(std::make_move_iterator(part.begin()),
                                  std::make_move_iterator(part.end()));
    push_waiting(index, std::move(scored));
  }
  push_waiting(index, std::move(rest));
}

void Generation::push_waiting(size_t index, TokenEvent event) {
  if (has_fallen_behind_) return;
  const int64_t num_bytes = waiting_bytes(event);
  if (request_.is_stream && num_waiting_bytes_ + num_bytes > answer_bytes_.events) {
    has_fallen_behind_ = true;
    return;
  }
  num_waiting_bytes_ += num_bytes;
  events_.emplace_back(index, std::move(event));
}

void Generation::fail(const ApiError& error) {
  const bool was_over = is_over_.exchange(true);
  cancel_all();
  if (was_over || has_answer_) return;
  has_answer_ = true;
  if (!has_stream_ && exchange_->claim_answer()) {
    exchange_->respond(error_response(error, api_));
    return;
  }
  exchange_->write(reply_ ? reply_->fail(error) : str("data: ", error.body(), "\n\n", kSseDone));
  exchange_->finish();
}

void Generation::fail_inside(const std::string& what) {
  if (context_.config.on_error) context_.config.on_error(exchange_->request().id, what);
  fail(internal_error());
}

}  // namespace halley
