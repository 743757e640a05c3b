#include "halley/server/openai/api_error.h"

#include "halley/json/json.h"

namespace halley {

std::string ApiError::body() const {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? OrderedJson() : OrderedJson(text);
  };
  const OrderedJson body = {{"error",
                             {{"message", what()},
                              {"type", details_.type},
                              {"param", text_or_null(details_.param)},
                              {"code", text_or_null(details_.code)}}}};
  return body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

ApiError invalid_field(const std::string& param, const std::string& message) {
  return {message, {.param = param}};
}

ApiError overloaded(const std::string& message, int retry_after_s) {
  return {message,
          {.status = 503,
           .type = "server_error",
           .code = "overloaded",
           .retry_after_s = retry_after_s}};
}

ApiError internal_error() {
  return {"The server failed to answer this request. Its log names the request's x-request-id.",
          {.status = 500, .type = "server_error", .code = "internal_error"}};
}

}  // namespace halley
