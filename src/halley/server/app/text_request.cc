#include "halley/server/app/text_request.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "halley/server/app/http_answers.h"
#include "halley/server/openai/request_parser.h"

namespace halley {

TextRequest::TextRequest(AppContext& context, std::shared_ptr<HttpExchange> exchange,
                         ApiEndpoint endpoint)
    : context_(context),
      exchange_(std::move(exchange)),
      endpoint_(endpoint),
      watch_(std::make_shared<RequestWatch>()) {
  exchange_->on_disconnect([watch = watch_] { watch->set_gone(); });
}

void TextRequest::answer() noexcept {
  run_step(
      context_.config, exchange_->request().id, [this] { exchange_->respond(make_answer()); },
      [this](const ApiError& error) { exchange_->respond(error_response(error)); });
}

HttpResponse TextRequest::make_answer() {
  watch_->check();
  const HttpRequest& http = exchange_->request();
  const ApiRequest request = parse_request(http.body, endpoint_, context_.rules);
  check_model_name(context_.config, request.model);
  HttpResponse response =
      json_response(endpoint_ == ApiEndpoint::kTokenize ? tokenize(request) : detokenize(request));
  report_ignored(context_.config, http.id, request.ignored);
  add_ignored(request.ignored, response);
  return response;
}

OrderedJson TextRequest::tokenize(const ApiRequest& request) const {
  std::vector<int32_t> ids;
  if (!request.messages.empty()) {
    ids = encode_text(context_, context_.format.render(request),
                      request.adds_special_tokens.value_or(false), *watch_);
  } else if (const auto* text = std::get_if<std::string>(&request.prompts.front())) {
    ids = encode_text(context_, *text, request.adds_special_tokens.value_or(true), *watch_);
  } else {
    throw invalid_field("prompt", "prompt: expected a string, got token ids.");
  }
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
