#include "halley/server/app/text_request.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "halley/server/anthropic/message_fields.h"
#include "halley/server/app/http_answers.h"
#include "halley/server/openai/request_parser.h"

namespace halley {

TextRequest::TextRequest(AppContext& context, std::shared_ptr<HttpExchange> exchange, TextTask task,
                         const ChatApi* api)
    : context_(context),
      exchange_(std::move(exchange)),
      task_(task),
      api_(api),
      watch_(std::make_shared<RequestWatch>()) {
  exchange_->on_disconnect([watch = watch_] { watch->set_gone(); });
}

void TextRequest::answer() noexcept {
  run_step(
      context_.config, exchange_->request().id, [this] { exchange_->respond(make_answer()); },
      [this](const ApiError& error) { exchange_->respond(error_response(error, api_)); });
}

HttpResponse TextRequest::make_answer() {
  watch_->check();
  const ApiRequest request = parse();
  find_model(context_.config, request.model);  // throws; every adapter has the same tokens
  HttpResponse response = json_response(answer_to(request));
  report_ignored(context_.config, exchange_->request().id, request.ignored);
  add_ignored(request.ignored, response);
  return response;
}

ApiRequest TextRequest::parse() const {
  const std::string& body = exchange_->request().body;
  switch (task_) {
    case TextTask::kTokenize:
    case TextTask::kApplyTemplate:
      break;
    case TextTask::kDetokenize:
      return parse_request(body, ApiEndpoint::kDetokenize, context_.rules);
    case TextTask::kCountTokens:
      return parse_message_request(body, ApiEndpoint::kTokenize, context_.rules);
  }
  return parse_request(body, ApiEndpoint::kTokenize, context_.rules);
}

OrderedJson TextRequest::answer_to(const ApiRequest& request) const {
  switch (task_) {
    case TextTask::kTokenize:
      break;
    case TextTask::kDetokenize:
      return detokenize(request);
    case TextTask::kCountTokens:
      return {{"input_tokens", token_ids_of(request).size()}};
    case TextTask::kApplyTemplate:
      require_field(!request.messages.empty(), "messages");
      return {{"prompt", context_.format.render(request)}};
  }
  return tokenize(request);
}

std::vector<int32_t> TextRequest::token_ids_of(const ApiRequest& request) const {
  if (!request.messages.empty()) {
    return encode_text(context_, context_.format.render(request),
                       request.adds_special_tokens.value_or(false), *watch_);
  }
  if (const auto* text = std::get_if<std::string>(&request.prompts.front())) {
    return encode_text(context_, *text, request.adds_special_tokens.value_or(true), *watch_);
  }
  throw invalid_field("prompt", "prompt: expected a string, got token ids.");
}

OrderedJson TextRequest::tokenize(const ApiRequest& request) const {
  const std::vector<int32_t> ids = token_ids_of(request);
  OrderedJson json = {{"count", ids.size()},
                      {"max_model_len", context_.engine->config().max_model_len},
                      {"tokens", ids}};
  json["token_strs"] = nullptr;
  if (request.returns_token_strs) {
    json["token_strs"] = OrderedJson::array();
    for (const int32_t id : ids) {
      json["token_strs"].push_back(context_.tokenizer->token_of(id));
    }
  }
  return json;
}

OrderedJson TextRequest::detokenize(const ApiRequest& request) const {
  return {{"prompt", context_.tokenizer->decode(request.token_ids, false)}};
}

}  // namespace halley
