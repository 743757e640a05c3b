// A request of the Responses API: the chat that it asks for, and the rest.
#pragma once

#include <string>

#include "halley/json/json.h"
#include "halley/server/openai/api_request.h"

namespace halley {

struct ResponseRequest {
  ApiRequest chat;                   // without the instructions and without earlier turns
  std::string instructions;          // empty: none
  std::string previous_response_id;  // empty: none
  bool asks_to_store = true;         // the API's default
  bool must_store = false;           // the request says so itself
  /// Members of the body that the response repeats, in the order in which it has them.
  OrderedJson echo = OrderedJson::object();
};

}  // namespace halley
