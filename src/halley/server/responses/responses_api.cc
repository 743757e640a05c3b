#include "halley/server/responses/responses_api.h"

#include <utility>

#include "halley/base/str.h"
#include "halley/server/openai/api_id.h"
#include "halley/server/responses/response_fields.h"
#include "halley/server/responses/response_reply.h"

namespace halley {
namespace {

constexpr int kIdChars = 24;

ApiError not_stored(const std::string& param, const std::string& id) {
  return {str(param, ": expected the id of a stored response, got ", quote(id),
              ". It was not stored, was deleted, or gave way to newer ones."),
          {.status = 404, .param = param, .code = "response_not_found"}};
}

void check_store(const ResponseRequest& request, const ResponseStore& store) {
  if (store.is_enabled()) return;
  constexpr const char* kAdvice =
      "this server stores no responses. Start it with --stored-responses, or send the whole "
      "conversation as input.";
  if (request.must_store) throw invalid_field("store", str("store: expected false: ", kAdvice));
  if (request.previous_response_id.empty()) return;
  throw invalid_field("previous_response_id",
                      str("previous_response_id: expected nothing: ", kAdvice));
}

}  // namespace

ParsedChat ResponsesApi::parse(std::string_view body, const ChatContext& context) const {
  ResponseRequest request = parse_response_request(body, context.rules);
  check_store(request, *store_);
  OrderedJson conversation = OrderedJson::array();
  if (!request.previous_response_id.empty()) {
    const auto earlier = store_->find(context.client, request.previous_response_id);
    if (!earlier) throw not_stored("previous_response_id", request.previous_response_id);
    conversation = OrderedJson::parse(earlier->messages);
  }
  ApiRequest& chat = request.chat;
  for (OrderedJson& message : chat.messages) conversation.push_back(std::move(message));
  chat.messages = OrderedJson::array();
  if (!request.instructions.empty()) {
    chat.messages.push_back({{"role", "system"}, {"content", request.instructions}});
  }
  for (const OrderedJson& message : conversation) chat.messages.push_back(message);

  const bool is_stored = store_->is_enabled() && request.asks_to_store;
  ResponseHead head = {.id = random_id("resp_", kIdChars),
                       .model = chat.model.empty() ? context.default_model : chat.model,
                       .created_s = context.now_s,
                       .is_stored = is_stored,
                       .echo = std::move(request.echo)};
  ResponseReply::OnComplete on_complete;
  if (is_stored) {
    on_complete = [store = store_, client = context.client, id = head.id,
                   conversation = std::move(conversation)](const OrderedJson& response,
                                                           OrderedJson message) mutable {
      conversation.push_back(std::move(message));
      store->put(client, id, {json_text(response), json_text(conversation)});
    };
  }
  return {std::move(chat),
          std::make_unique<ResponseReply>(std::move(head), std::move(on_complete))};
}

std::string ResponsesApi::stored(const std::string& client, const std::string& id) const {
  auto response = store_->find(client, id);
  if (!response) throw not_stored("response_id", id);
  return std::move(response->json);
}

std::string ResponsesApi::erase(const std::string& client, const std::string& id) const {
  if (!store_->erase(client, id)) throw not_stored("response_id", id);
  return json_text({{"id", id}, {"object", "response"}, {"deleted", true}});
}

}  // namespace halley
