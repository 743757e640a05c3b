#include "halley/server/app/pooled_request.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <span>
#include <utility>
#include <variant>

#include "halley/base/str.h"
#include "halley/server/app/engine_bridge.h"
#include "halley/server/app/http_answers.h"
#include "halley/server/openai/api_id.h"
#include "halley/server/openai/pooling_fields.h"

namespace halley {
namespace {

constexpr int kRetryAfterS = 1;
constexpr int64_t kAnswerBytes = 8192;
constexpr size_t kPieceBytes = size_t{64} << 10;
// Answers from so many numbers are made by the response thread: about a millisecond of work.
constexpr size_t kShortAnswerNumbers = size_t{16} << 10;

const char* prefix_of(ApiEndpoint endpoint) {
  switch (endpoint) {
    case ApiEndpoint::kRerank:
      return "rerank-";
    case ApiEndpoint::kScore:
      return "score-";
    default:
      return "embd-";
  }
}

/// The field with the texts, of which a request may have many.
const char* texts_field(ApiEndpoint endpoint) {
  switch (endpoint) {
    case ApiEndpoint::kRerank:
      return "documents";
    case ApiEndpoint::kScore:
      return "text_2";
    default:
      return "input";
  }
}

double yes_share(std::span<const float> yes_and_no) {
  return 1 / (1 + std::exp(double{yes_and_no[1]} - double{yes_and_no[0]}));
}

}  // namespace

PooledRequest::PooledRequest(AppContext& context, std::shared_ptr<HttpExchange> exchange,
                             ApiEndpoint endpoint, std::unique_ptr<Admission> admission)
    : context_(context),
      exchange_(std::move(exchange)),
      endpoint_(endpoint),
      arrival_(std::chrono::steady_clock::now()),
      admission_(std::move(admission)),
      watch_(std::make_shared<RequestWatch>()) {}

void PooledRequest::watch_client() {
  exchange_->on_disconnect([weak = weak_from_this(), watch = watch_] {
    watch->set_gone();
    const auto self = weak.lock();
    if (!self) return;
    self->is_over_ = true;
    self->cancel_all();
  });
}

void PooledRequest::preprocess() noexcept {
  const auto steps = [this] {
    watch_->check();
    parse();
    check_model();
    tokenize();
    reserve_memory();
    submit();
  };
  run_step(context_.config, exchange_->request().id, steps,
           [this](const ApiError& error) { fail(error); });
  admission_.reset();
}

bool PooledRequest::is_yes_no() const {
  return endpoint_ != ApiEndpoint::kEmbeddings && context_.config.pooling.yes_no.has_value();
}

void PooledRequest::parse() {
  request_ = parse_pooling_request(exchange_->request().body, endpoint_, context_.rules);
  const double timeout_s = request_.timeout_s.value_or(context_.config.request_timeout_s);
  if (timeout_s > 0) {
    watch_->set_deadline(arrival_ + std::chrono::duration_cast<ServerTime::duration>(
                                        std::chrono::duration<double>(timeout_s)));
  }
  watch_->check();
  adapter_ = find_model(context_.config, request_.model);
  if (!request_.pooling.normalizes) {
    request_.pooling.normalizes = context_.config.pooling.normalizes;
  }
  report_ignored(context_.config, exchange_->request().id, request_.ignored);
  head_ = {.id = random_id(prefix_of(endpoint_), 24),
           .created_s = seconds_since_epoch(),
           .model = request_.model.empty() ? context_.config.model_names.front() : request_.model};
}

void PooledRequest::check_model() const {
  if (is_yes_no()) return;
  const int64_t hidden_size = context_.engine->hidden_size();
  if (hidden_size == 0) {
    throw ApiError(
        "This server's model gives no hidden states, which embeddings are made of: expected a "
        "model that runs on the CPU in one stage. Serve it with --device cpu; rerank and score "
        "work without them with --scoring yes-no.",
        {.code = "embeddings_unsupported"});
  }
  const std::optional<int64_t> dimensions = request_.pooling.dimensions;
  if (dimensions && *dimensions > hidden_size) {
    throw invalid_field("dimensions",
                        str("dimensions: expected 1 to ", hidden_size,
                            ", the size of the model's embeddings, got ", *dimensions, "."));
  }
}

void PooledRequest::tokenize() {
  const std::vector<std::string>& queries = request_.pooling.queries;
  const std::vector<std::string>& documents = request_.pooling.documents;
  const char* const first = endpoint_ == ApiEndpoint::kRerank ? "query" : "text_1";
  if (is_yes_no()) return add_pairs(*context_.config.pooling.yes_no);
  for (size_t i = 0; i < request_.prompts.size(); ++i) {
    const std::string param = request_.prompts.size() == 1 ? "input" : str("input[", i, "]");
    if (const auto* text = std::get_if<std::string>(&request_.prompts[i])) {
      add_text(*text, param);
    } else {
      add_prompt(std::get<std::vector<int32_t>>(request_.prompts[i]), param);
    }
  }
  for (const std::string& query : queries) add_text(query, first);
  const char* const second = texts_field(endpoint_);
  for (size_t i = 0; i < documents.size(); ++i) add_text(documents[i], str(second, "[", i, "]"));
}

void PooledRequest::add_text(const std::string& text, const std::string& param) {
  const bool adds_special_tokens = request_.adds_special_tokens.value_or(true);
  add_prompt(request_.truncates_prompt_to
                 ? encode_text(context_, text, adds_special_tokens, *watch_)
                 : encode_prompt(context_, text, adds_special_tokens, param.c_str(), *watch_),
             param);
}

// The template writes special tokens itself.
void PooledRequest::add_pairs(const YesNoScoring& scoring) {
  const ApiPooling& pooling = request_.pooling;
  const char* const documents = texts_field(endpoint_);
  for (size_t i = 0; i < pooling.documents.size(); ++i) {
    const std::string& query = pooling.queries[pooling.queries.size() == 1 ? 0 : i];
    const std::string param = str(documents, "[", i, "]");
    add_prompt(
        encode_prompt(context_,
                      scoring.prompt.render(pooling.instruction, query, pooling.documents[i]),
                      /*adds_special_tokens=*/false, param.c_str(), *watch_),
        param);
  }
}

void PooledRequest::add_prompt(std::vector<int32_t> ids, const std::string& param) {
  const int64_t max_model_len = context_.engine->config().max_model_len;
  if (request_.truncates_prompt_to) {
    const int64_t num_wanted = *request_.truncates_prompt_to;
    const auto num_kept =
        static_cast<size_t>(std::max<int64_t>(1, num_wanted < 0 ? max_model_len - 1 : num_wanted));
    if (ids.size() > num_kept) ids.erase(ids.begin(), ids.end() - static_cast<int64_t>(num_kept));
  }
  if (ids.empty()) {
    throw invalid_field(param, str(param, ": expected at least one token, got none."));
  }
  const auto num_ids = static_cast<int64_t>(ids.size());
  if (num_ids >= max_model_len) {
    throw ApiError(str("This model's context has ", max_model_len, " tokens; expected fewer in ",
                       param, ", got ", num_ids, "."),
                   {.param = param, .code = "context_length_exceeded"});
  }
  num_prompt_tokens_ += num_ids;
  prompts_.push_back(std::move(ids));
}

// Vectors wait for the last one; their text is made piece by piece.
void PooledRequest::reserve_memory() {
  const int64_t num_queued_max = context_.engine->config().max_num_queued;
  const auto num_sequences = static_cast<int64_t>(prompts_.size());
  if (num_sequences > num_queued_max) {
    const char* const param = texts_field(endpoint_);
    throw invalid_field(param, str(param, ": expected at most ", num_queued_max,
                                   " texts, the length of the queue, got ", num_sequences, "."));
  }
  // One slot was reserved before the body was read.
  if (!admission_->grow(num_sequences - 1)) {
    throw overloaded("The queue has no space for all texts of the request. Try again later.",
                     kRetryAfterS);
  }
  const int64_t numbers_of_one = is_yes_no() ? 2 : context_.engine->hidden_size();
  const int64_t num_bytes =
      kAnswerBytes + num_sequences * (kAnswerBytes + numbers_of_one * int64_t{sizeof(float)}) +
      static_cast<int64_t>(2 * exchange_->request().body.size());
  reservation_.emplace(context_.answer_bytes);
  if (!reservation_->try_grow(static_cast<size_t>(num_bytes))) {
    throw overloaded(
        "The answers in the making need all memory that there is for them. Try again "
        "later, or send fewer texts at once.",
        kRetryAfterS);
  }
}

void PooledRequest::submit() {
  Pooling pooling = {.kind = context_.config.pooling.kind};
  if (is_yes_no()) {
    const YesNoScoring& scoring = *context_.config.pooling.yes_no;
    pooling = {.kind = Pooling::Kind::kTokenLogits, .token_ids = {scoring.yes_id, scoring.no_id}};
  }
  for (size_t i = 0; i < prompts_.size(); ++i) ids_.push_back(context_.next_id++);
  {
    const std::lock_guard lock(mutex_);
    pooled_.resize(prompts_.size());
    has_ids_ = true;
  }
  watch_->check();
  for (size_t index = 0; index < ids_.size(); ++index) {
    TokenCallback observe;
    if (context_.config.make_observer) observe = context_.config.make_observer();
    GenerateRequest generate =
        make_pooled_request(request_, pooling, std::move(prompts_[index]), watch_->deadline());
    generate.adapter = adapter_;
    const SubmitResult result = context_.engine->submit(
        std::move(generate), ids_[index],
        [self = shared_from_this(), index, observe](const TokenEvent& event) {
          if (observe) observe(event);
          self->take_event(index, event);
        });
    admission_->release_one();
    if (result.status != Submit::kQueued) throw submit_error(result);
    // The client may disconnect between two submits.
    if (is_over_) return cancel_all();
  }
  const std::lock_guard lock(mutex_);
  is_submitted_ = true;
  if (num_ended_ == ids_.size()) push_answer();
}

void PooledRequest::take_event(size_t index, const TokenEvent& event) {
  if (!event.finish_reason) return;
  const bool has_failed = is_failure(event);
  bool is_first_failure = false;
  {
    const std::lock_guard lock(mutex_);
    ++num_ended_;
    if (!has_failed) {
      pooled_[index] = event.pooled;
    } else if (!failure_) {
      is_first_failure = true;
      failure_ = event;
    }
    if (is_submitted_ && num_ended_ == ids_.size()) push_answer();
  }
  if (is_first_failure) cancel_all();
}

// False of push(): the server ends.
void PooledRequest::push_answer() {
  size_t num_numbers = 0;
  for (const std::vector<float>& vector : pooled_) num_numbers += vector.size();
  WorkQueue& thread =
      num_numbers <= kShortAnswerNumbers ? *context_.response_thread : *context_.answer_thread;
  static_cast<void>(thread.push([self = shared_from_this()] { self->answer(); }));
}

void PooledRequest::cancel_all() {
  {
    const std::lock_guard lock(mutex_);
    if (!has_ids_) return;
  }
  for (const RequestId id : ids_) context_.engine->cancel(id);
}

void PooledRequest::answer() noexcept {
  if (is_over_) return;
  try {
    if (failure_) {
      if (failure_->finish_reason == FinishReason::kError) {
        return fail_inside(failure_->error.c_str());
      }
      return fail(end_error(request_, *failure_));
    }
    write_answer();
  } catch (const std::exception& error) {
    fail_inside(error.what());
  }
}

void PooledRequest::write_answer() {
  switch (endpoint_) {
    case ApiEndpoint::kRerank:
      return respond(rerank_answer(scores(), request_, head_, num_prompt_tokens_));
    case ApiEndpoint::kScore:
      return respond(score_answer(scores(), head_, num_prompt_tokens_));
    default:
      break;
  }
  for (std::vector<float>& vector : pooled_) {
    vector = finish_embedding(std::move(vector), request_.pooling);
  }
  writer_.emplace(EmbeddingWriter::Parts{.head = head_,
                                         .num_prompt_tokens = num_prompt_tokens_,
                                         .is_base64 = request_.pooling.is_base64,
                                         .embeddings = std::move(pooled_)});
  std::string piece;
  if (!writer_->write(kPieceBytes, piece)) return respond(std::move(piece));
  HttpResponse response = {.body = std::move(piece)};
  add_ignored(request_.ignored, response);
  exchange_->start_stream(std::move(response));
  await_client();
}

std::vector<double> PooledRequest::scores() const {
  std::vector<double> scores;
  if (is_yes_no()) {
    for (const std::vector<float>& logits : pooled_) scores.push_back(yes_share(logits));
    return scores;
  }
  const size_t num_queries = request_.pooling.queries.size();
  for (size_t i = 0; i < request_.pooling.documents.size(); ++i) {
    const std::vector<float>& query = pooled_[num_queries == 1 ? 0 : i];
    scores.push_back(cosine_of(query, pooled_[num_queries + i]));
  }
  return scores;
}

void PooledRequest::respond(std::string body) {
  HttpResponse response = {.body = std::move(body)};
  add_ignored(request_.ignored, response);
  exchange_->respond(std::move(response));
}

// Answers get turns, one piece each.
void PooledRequest::await_client() {
  exchange_->when_sent([self = shared_from_this()] {
    static_cast<void>(self->context_.answer_thread->push([self] { self->write_next_piece(); }));
  });
}

// A stream that is dropped, as after an exception here, ends without its last chunk.
void PooledRequest::write_next_piece() noexcept {
  if (is_over_) return;
  try {
    std::string piece;
    const bool has_more = writer_->write(kPieceBytes, piece);
    if (!exchange_->write(std::move(piece))) {
      is_over_ = true;
    } else if (has_more) {
      await_client();
    } else {
      exchange_->finish();
    }
  } catch (const std::exception& error) {
    is_over_ = true;
    if (context_.config.on_error) context_.config.on_error(exchange_->request().id, error.what());
  }
}

void PooledRequest::fail(const ApiError& error) {
  const bool was_over = is_over_.exchange(true);
  cancel_all();
  if (!was_over) exchange_->respond(error_response(error));
}

void PooledRequest::fail_inside(const char* what) {
  if (context_.config.on_error) context_.config.on_error(exchange_->request().id, what);
  fail(internal_error());
}

}  // namespace halley
