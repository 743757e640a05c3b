// OpenAI's Responses API over the chats of this server.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "halley/server/openai/reply.h"
#include "halley/server/responses/response_store.h"

namespace halley {

class ResponsesApi : public ChatApi {
 public:
  explicit ResponsesApi(const ResponseStoreLimits& limits)
      : store_(std::make_shared<ResponseStore>(limits)) {}

  ParsedChat parse(std::string_view body, const ChatContext& context) const override;
  std::string error_body(const ApiError& error) const override { return error.body(); }
  const char* silent_event() const override { return ": keep-alive\n\n"; }

  /// The JSON of a stored response of this client, and of its deletion. Throw ApiError 404.
  std::string stored(const std::string& client, const std::string& id) const;
  std::string erase(const std::string& client, const std::string& id) const;

 private:
  const std::shared_ptr<ResponseStore> store_;  // replies use it too
};

}  // namespace halley
