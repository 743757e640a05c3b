// One request of /tokenize or /detokenize, from its body to its answer.
#pragma once

#include <memory>

#include "halley/server/app/app_context.h"
#include "halley/server/app/request_watch.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/openai/api_request.h"

namespace halley {

/// Created on a thread of the HTTP server, answered on a preprocessing thread.
class TextRequest {
 public:
  /// Watches the client from now on.
  TextRequest(AppContext& context, std::shared_ptr<HttpExchange> exchange, ApiEndpoint endpoint);

  void answer() noexcept;

 private:
  HttpResponse make_answer();
  OrderedJson tokenize(const ApiRequest& request) const;
  OrderedJson detokenize(const ApiRequest& request) const;

  AppContext& context_;
  const std::shared_ptr<HttpExchange> exchange_;
  const ApiEndpoint endpoint_;
  const std::shared_ptr<RequestWatch> watch_;
};

}  // namespace halley
