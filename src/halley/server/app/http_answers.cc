#include "halley/server/app/http_answers.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/http/api_keys.h"
#include "halley/server/openai/answer.h"

namespace halley {
namespace {

// Every token counts as at least this many bytes, even if its spelling is odd ("<0x0A>") or
// missing.
constexpr size_t kTokenBytesMin = 16;

void check_text_bytes(const AppContext& context, const std::string& text, const char* param) {
  if (text.size() <= context.text_bytes_max) return;
  throw ApiError(
      str("This model's context has ", context.engine->config().max_model_len, " tokens, at most ",
          context.text_bytes_max, " bytes of text, got ", text.size(), " bytes."),
      {.param = param, .code = "context_length_exceeded"});
}

}  // namespace

HttpResponse error_response(const ApiError& error, const ChatApi* api) {
  HttpResponse response = {.status = error.details().status,
                           .body = api != nullptr ? api->error_body(error) : error.body()};
  if (error.details().retry_after_s > 0) {
    response.headers.emplace_back("retry-after", str(error.details().retry_after_s));
  }
  return response;
}

HttpResponse json_response(const OrderedJson& json, int status) {
  return {.status = status, .body = json_text(json)};
}

HttpResponse stream_response(std::string events) {
  return {.content_type = "text/event-stream; charset=utf-8",
          .body = std::move(events),
          .headers = {{"cache-control", "no-cache"}}};
}

void report_ignored(const AppConfig& config, const std::string& request_id,
                    const IgnoredMembers& ignored) {
  if (ignored.is_empty() || !config.on_ignored) return;
  config.on_ignored(request_id, ignored.text());
}

void add_ignored(const IgnoredMembers& ignored, HttpResponse& response) {
  if (ignored.is_empty()) return;
  response.headers.emplace_back("x-halley-ignored", ignored.text());
}

bool run_step(const AppConfig& config, const std::string& request_id,
              const std::function<void()>& step, const std::function<void(const ApiError&)>& fail) {
  try {
    step();
    return true;
  } catch (const ClientGone&) {
    // Nobody reads an answer.
  } catch (const ApiError& error) {
    fail(error);
  } catch (const InputError& error) {
    fail(invalid_field("", error.what()));
  } catch (const std::exception& error) {
    if (config.on_error) config.on_error(request_id, error.what());
    fail(internal_error());
  }
  return false;
}

std::shared_ptr<const Adapter> find_model(const AppConfig& config, const std::string& name) {
  if (name.empty()) return nullptr;
  const auto& names = config.model_names;
  if (std::find(names.begin(), names.end(), name) != names.end()) return nullptr;
  auto adapter = config.adapters == nullptr ? nullptr : config.adapters->find(name);
  if (adapter != nullptr) return adapter;
  throw ApiError(str("model: expected a name of /v1/models, got ", quote(name), "."),
                 {.status = 404, .param = "model", .code = "model_not_found"});
}

void check_precision(const AppContext& context, const ApiRequest& request) {
  if (context.has_precisions || request.precision != PrecisionMode::kLow) return;
  throw invalid_field("precision",
                      "precision: expected full or auto, since the model has one precision, got "
                      "low.");
}

std::string client_of(const AppConfig& config, const HttpRequest& request) {
  const std::string_view key = key_of(request);
  if (config.has_api_keys && !key.empty()) return std::string(key);
  return request.client.substr(0, request.client.rfind(':'));
}

bool push_preprocessing(AppContext& context, const HttpRequest& request,
                        PreprocessingQueue::Job job) {
  const bool is_short = request.body.size() <= kShortBodyBytes;
  return push_preprocessing(context,
                            is_short ? PreprocessingLane::kShort : PreprocessingLane::kLong,
                            request, std::move(job));
}

bool push_preprocessing(AppContext& context, PreprocessingLane lane, const HttpRequest& request,
                        PreprocessingQueue::Job job) {
  return context.preprocessing_threads->push(lane, client_of(context.config, request),
                                             std::move(job));
}

std::vector<int32_t> encode_text(const AppContext& context, const std::string& text,
                                 bool adds_special_tokens, const RequestWatch& watch) {
  check_text_bytes(context, text, "prompt");
  const EncodeLimits limits = {.must_stop = [&watch] { return watch.must_stop(); }};
  auto ids = context.tokenizer->encode_within(text, adds_special_tokens, limits);
  watch.check();
  return std::move(ids).value();
}

std::vector<int32_t> encode_prompt(const AppContext& context, const std::string& text,
                                   bool adds_special_tokens, const char* param,
                                   const RequestWatch& watch) {
  check_text_bytes(context, text, param);
  const int64_t max_model_len = context.engine->config().max_model_len;
  const EncodeLimits limits = {.num_ids_max = static_cast<size_t>(max_model_len),
                               .must_stop = [&watch] { return watch.must_stop(); }};
  auto ids = context.tokenizer->encode_within(text, adds_special_tokens, limits);
  watch.check();
  if (ids) return *std::move(ids);
  throw ApiError(str("This model's context has ", max_model_len, " tokens; expected a prompt ",
                     "within it, got one of more."),
                 {.param = param, .code = "context_length_exceeded"});
}

size_t find_token_bytes_max(const Tokenizer& tokenizer) {
  size_t token_bytes_max = kTokenBytesMin;
  for (int32_t id = 0; id < tokenizer.num_ids(); ++id) {
    token_bytes_max = std::max(token_bytes_max, tokenizer.token_of(id).size());
  }
  return token_bytes_max;
}

int64_t seconds_since_epoch() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace halley
