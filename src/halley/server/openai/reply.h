// The answer to a chat in the format of another API than OpenAI's chat completions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "halley/server/openai/answer.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/request_parser.h"

namespace halley {

/// The answer to one chat with one choice: either begin(), add()s and end(), which return events of
/// a stream, or whole() alone. One thread at a time.
class Reply {
 public:
  virtual ~Reply() = default;

  virtual std::string begin(const ApiUsage& usage) = 0;
  virtual std::string add(const ChoiceDelta& delta) = 0;
  virtual std::string end(const ApiUsage& usage) = 0;
  /// Ends a stream with an error, at any time before end().
  virtual std::string fail(const ApiError& error) = 0;

  /// The JSON of an answer that is not streamed.
  virtual std::string whole(const ChoiceDelta& delta, const ApiUsage& usage) = 0;

  /// How many copies of the output's text it may have at a time, for the budget of answers.
  virtual int64_t num_text_copies() const = 0;
};

/// A body of another API: the chat that it asks for, and the answer to come.
struct ParsedChat {
  ApiRequest request;
  std::unique_ptr<Reply> reply;
};

/// The parts of a request that are not in its body.
struct ChatContext {
  const RequestRules& rules;
  std::string client;         // who asks: its key, or its address
  std::string default_model;  // for requests without one
  int64_t now_s = 0;          // since the epoch
};

/// An API whose requests are chats. Any thread.
class ChatApi {
 public:
  virtual ~ChatApi() = default;

  /// `body` is untrusted. Throws ApiError 400 as parse_request() does.
  virtual ParsedChat parse(std::string_view body, const ChatContext& context) const = 0;
  /// The body of an answer that is an error.
  virtual std::string error_body(const ApiError& error) const = 0;
  /// An event that says nothing, for silent streams.
  virtual const char* silent_event() const = 0;
};

/// A server-sent event with a name.
std::string named_event(std::string_view name, const OrderedJson& json);

}  // namespace halley
