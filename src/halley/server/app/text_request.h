// One request that is answered without the engine, from its body to its answer: the texts and
// tokens of prompts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halley/server/app/app_context.h"
#include "halley/server/app/request_watch.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/reply.h"

namespace halley {

enum class TextTask : uint8_t { kTokenize, kDetokenize, kCountTokens, kApplyTemplate };

/// Created on a thread of the HTTP server, answered on a preprocessing thread.
class TextRequest {
 public:
  /// Watches the client from now on. `api`: the format of errors; null: OpenAI's.
  TextRequest(AppContext& context, std::shared_ptr<HttpExchange> exchange, TextTask task,
              const ChatApi* api);

  void answer() noexcept;

 private:
  HttpResponse make_answer();
  ApiRequest parse() const;
  OrderedJson answer_to(const ApiRequest& request) const;
  std::vector<int32_t> token_ids_of(const ApiRequest& request) const;
  OrderedJson tokenize(const ApiRequest& request) const;
  OrderedJson detokenize(const ApiRequest& request) const;

  AppContext& context_;
  const std::shared_ptr<HttpExchange> exchange_;
  const TextTask task_;
  const ChatApi* const api_;
  const std::shared_ptr<RequestWatch> watch_;
};

}  // namespace halley
