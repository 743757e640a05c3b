#include "halley/server/anthropic/messages_api.h"

#include <memory>
#include <utility>

#include "halley/json/json.h"
#include "halley/server/anthropic/message_fields.h"
#include "halley/server/anthropic/message_reply.h"
#include "halley/server/openai/api_id.h"

namespace halley {
namespace {

constexpr int kIdChars = 24;

}  // namespace

ParsedChat MessagesApi::parse(std::string_view body, const ChatContext& context) const {
  ApiRequest chat = parse_message_request(body, ApiEndpoint::kChat, context.rules);
  MessageHead head = {.id = random_id("msg_", kIdChars),
                      .model = chat.model.empty() ? context.default_model : chat.model,
                      .stop_sequences = chat.sampling.stop,
                      .is_stream = chat.is_stream};
  return {std::move(chat), std::make_unique<MessageReply>(std::move(head))};
}

std::string MessagesApi::error_body(const ApiError& error) const {
  return json_text(message_error(error.details().status, error.what()));
}

std::string message_error_body(int status, std::string_view openai_body) {
  const OrderedJson json = OrderedJson::parse(openai_body);
  return json_text(message_error(status, json["error"]["message"].get<std::string>()));
}

}  // namespace halley
