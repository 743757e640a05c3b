// Anthropic's Messages API over the chats of this server.
#pragma once

#include <string>
#include <string_view>

#include "halley/server/openai/reply.h"

namespace halley {

class MessagesApi : public ChatApi {
 public:
  ParsedChat parse(std::string_view body, const ChatContext& context) const override;
  std::string error_body(const ApiError& error) const override;
  const char* silent_event() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }
};

/// The body of an error answer in this API's format, of one in OpenAI's.
std::string message_error_body(int status, std::string_view openai_body);

}  // namespace halley
