// Converts the messages of a chat request into the format that chat templates expect.
#include <string>

#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"

namespace halley {
namespace {

constexpr size_t kMessagesMax = 4096;
constexpr size_t kPartsMax = 1024;
constexpr size_t kCallsMax = 128;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kArgumentsBytesMax = size_t{1} << 20;
constexpr int kArgumentsDepthMax = 32;

// Rejects a content part that is no "text", with advice by its kind.
[[noreturn]] void reject_part(const OrderedJson& part, const std::string& path) {
  const auto type = part.find("type");
  const std::string got = type != part.end() && type->is_string()
                              ? quote(type->get_ref<const std::string&>(), 40)
                              : std::string("no type");
  throw invalid_field(path, str(path, ": expected a part of type \"text\", got ", got,
                                ". The model reads text alone: images, audio and files are not "
                                "supported."));
}

std::string content_of(const OrderedJson& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    throw invalid_field(path, str(path, ": expected a string or a list of text parts, got ",
                                  kind_in_words(content), "."));
  }
  if (content.size() > kPartsMax) {
    throw invalid_field(
        path, str(path, ": expected at most ", kPartsMax, " parts, got ", content.size(), "."));
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string where = str(path, "[", i, "]");
    const OrderedJson& part = content[i];
    expect_object(part, where);
    const auto type = part.find("type");
    if (type == part.end() || *type != "text") reject_part(part, where);
    expect_members(part, where, {"type", "text"});
    if (i > 0) text += '\n';
    text += string_member(part, "text", where, SIZE_MAX);
  }
  return text;
}

OrderedJson arguments_of(const OrderedJson& function, const std::string& path) {
  const auto member = function.find("arguments");
  if (member == function.end() || member->is_null()) return OrderedJson::object();
  const std::string text = string_member(function, "arguments", path, kArgumentsBytesMax);
  if (text.empty()) return OrderedJson::object();
  const std::string where = str(path, ".arguments");
  try {
    OrderedJson arguments = parse_ordered_json(text, where, {.depth_max = kArgumentsDepthMax});
    expect_object(arguments, where);
    return arguments;
  } catch (const ApiError&) {
    throw;
  } catch (const InputError& error) {
    throw invalid_field(where, error.what());
  }
}

OrderedJson call_of(const OrderedJson& call, const std::string& path) {
  expect_members(call, path, {"id", "type", "function", "index"});
  const auto type = call.find("type");
  if (type != call.end() && !type->is_null() && *type != "function") {
    throw invalid_field(path + ".type", str(path, ".type: expected \"function\", got ",
                                            quote(type->dump(), 40), "."));
  }
  const auto function = call.find("function");
  const std::string where = path + ".function";
  if (function == call.end()) {
    throw invalid_field(where, where + ": expected an object, got nothing.");
  }
  expect_members(*function, where, {"name", "arguments"});
  OrderedJson out = OrderedJson::object();
  const auto id = call.find("id");
  if (id != call.end() && !id->is_null())
    out["id"] = string_member(call, "id", path, kNameBytesMax);
  out["type"] = "function";
  out["function"] = {{"name", string_member(*function, "name", where, kNameBytesMax)},
                     {"arguments", arguments_of(*function, where)}};
  return out;
}

OrderedJson calls_of(const OrderedJson& calls, const std::string& path) {
  if (!calls.is_array() || calls.size() > kCallsMax) {
    throw invalid_field(path,
                        str(path, ": expected a list of at most ", kCallsMax, " calls, got ",
                            calls.is_array() ? str(calls.size()) : kind_in_words(calls), "."));
  }
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < calls.size(); ++i)
    out.push_back(call_of(calls[i], str(path, "[", i, "]")));
  return out;
}

std::string role_of(const OrderedJson& message, const std::string& path) {
  std::string role = string_member(message, "role", path, kNameBytesMax);
  for (const char* known : {"system", "developer", "user", "assistant", "tool"}) {
    if (role == known) return role;
  }
  throw invalid_field(path + ".role",
                      str(path, ".role: expected system, developer, user, assistant or tool, got ",
                          quote(role, 40), "."));
}

void add_content(const OrderedJson& message, const std::string& path, OrderedJson& out) {
  const auto content = message.find("content");
  const bool has_content = content != message.end() && !content->is_null();
  if (has_content) {
    out["content"] = content_of(*content, path + ".content");
  } else if (out.contains("tool_calls")) {
    out["content"] = "";  // templates concatenate it with strings
  } else {
    throw invalid_field(path + ".content",
                        str(path, ".content: expected a string or a list of text parts, got ",
                            content == message.end() ? "nothing" : "null", "."));
  }
}

OrderedJson message_of(const OrderedJson& message, const std::string& path) {
  expect_object(message, path);
  OrderedJson out = OrderedJson::object();
  const std::string role = role_of(message, path);
  out["role"] = role;
  // Empty members that OpenAI's client sends back from an answer are accepted.
  for (const char* name : {"annotations", "tool_calls"}) {
    const auto member = message.find(name);
    if (member == message.end() || member->is_null()) continue;
    if (member->is_array() && member->empty()) continue;
    if (role == "assistant" && std::string(name) == "tool_calls") {
      out["tool_calls"] = calls_of(*member, str(path, ".", name));
      continue;
    }
    throw invalid_field(str(path, ".", name),
                        str(path, ".", name, ": expected no such member in a message of role ",
                            role, ". Leave it out."));
  }
  add_content(message, path, out);
  for (const char* name : {"name", "tool_call_id", "reasoning_content"}) {
    const auto member = message.find(name);
    if (member == message.end() || member->is_null()) continue;
    const bool is_long = std::string(name) == "reasoning_content";
    out[name] = string_member(message, name, path, is_long ? SIZE_MAX : kNameBytesMax);
  }
  expect_members(message, path,
                 {"role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content",
                  "annotations"});
  return out;
}

}  // namespace

void store_messages(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = value.json;
  if (!json.is_array() || json.empty() || json.size() > kMessagesMax) {
    throw invalid_field(value.name,
                        str("messages: expected a list of 1 to ", kMessagesMax, " messages, got ",
                            json.is_array() ? str(json.size()) : kind_in_words(json), "."));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    request.messages.push_back(message_of(json[i], str("messages[", i, "]")));
  }
}

}  // namespace halley
