#include "halley/server/http/http_error.h"

#include "halley/json/json.h"

namespace halley {
namespace {

const char* error_type_of(int status) {
  if (status == 429) return "rate_limit_error";
  // 501 and 505: the client uses a part of HTTP that is not there.
  const bool is_request_wrong = status < 500 || status == 501 || status == 505;
  return is_request_wrong ? "invalid_request_error" : "server_error";
}

}  // namespace

HttpResponse http_error(int status, std::string_view message, std::string_view code) {
  OrderedJson error;
  error["message"] = message;
  error["type"] = error_type_of(status);
  error["param"] = nullptr;
  error["code"] = code.empty() ? OrderedJson(nullptr) : OrderedJson(code);
  OrderedJson document;
  document["error"] = std::move(error);
  HttpResponse response;
  response.status = status;
  response.body = document.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  if (status == 401) response.headers.emplace_back("www-authenticate", "Bearer realm=\"halley\"");
  return response;
}

}  // namespace halley
