// Converts the messages of a chat request into the format that chat templates expect.
#include <string>

#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"
#include "halley/server/openai/member_table.h"

namespace halley {
namespace {

constexpr size_t kMessagesMax = 4096;
constexpr size_t kPartsMax = 1024;
constexpr size_t kCallsMax = 128;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kArgumentsBytesMax = size_t{1} << 20;
constexpr int kArgumentsDepthMax = 32;

/// The types of content parts that are read, or left out with a word.
struct PartType {
  const char* name;
  const char* text_member;  // null: the part is ignored
};
constexpr PartType kPartTypes[] = {
    {"text", "text"},
    {"input_text", "text"},   // of OpenAI's Responses API, which clients mix in
    {"output_text", "text"},  // the same
    {"refusal", "refusal"},
    // Thoughts of earlier answers, as Anthropic's API has them: templates leave them out too.
    {"thinking", nullptr},
    {"redacted_thinking", nullptr},
    {"reasoning", nullptr},
};

// Throws ApiError with advice by the part's kind.
const PartType& type_of(const OrderedJson& part, const std::string& path) {
  const auto type = part.find("type");
  if (type != part.end() && type->is_string()) {
    for (const PartType& known : kPartTypes) {
      if (*type == known.name) return known;
    }
  }
  const std::string got = type != part.end() && type->is_string()
                              ? quote(type->get_ref<const std::string&>(), 40)
                              : std::string("no type");
  throw invalid_field(path, str(path, ": expected a part of type \"text\", got ", got,
                                ". The model reads text alone: images, audio and files are not "
                                "supported."));
}

std::string content_of(const OrderedJson& content, const std::string& path,
                       const FieldValue& value) {
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
  bool is_first = true;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string where = str(path, "[", i, "]");
    const OrderedJson& part = content[i];
    expect_object(part, where);
    const PartType& type = type_of(part, where);
    if (type.text_member == nullptr) {
      value.ignored.add("messages[].content[]", type.name);
      continue;
    }
    check_members(part, where, ObjectKind::kPart, value);
    if (!is_first) text += '\n';
    is_first = false;
    text += string_member(part, type.text_member, where, SIZE_MAX);
  }
  return text;
}

OrderedJson call_of(const OrderedJson& call, const std::string& path, const FieldValue& value) {
  check_members(call, path, ObjectKind::kCall, value);
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
  check_members(*function, where, ObjectKind::kCallFunction, value);
  OrderedJson out = OrderedJson::object();
  const auto id = call.find("id");
  if (id != call.end() && !id->is_null())
    out["id"] = string_member(call, "id", path, kNameBytesMax);
  out["type"] = "function";
  out["function"] = {{"name", string_member(*function, "name", where, kNameBytesMax)},
                     {"arguments", arguments_member(*function, where)}};
  return out;
}

OrderedJson calls_of(const OrderedJson& calls, const std::string& path, const FieldValue& value) {
  if (!calls.is_array() || calls.size() > kCallsMax) {
    throw invalid_field(path,
                        str(path, ": expected a list of at most ", kCallsMax, " calls, got ",
                            calls.is_array() ? str(calls.size()) : kind_in_words(calls), "."));
  }
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < calls.size(); ++i)
    out.push_back(call_of(calls[i], str(path, "[", i, "]"), value));
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

bool has_string(const OrderedJson& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_string();
}

void add_content(const OrderedJson& message, const std::string& path, const FieldValue& value,
                 OrderedJson& out) {
  const auto content = message.find("content");
  const bool has_content = content != message.end() && !content->is_null();
  if (has_content) {
    out["content"] = content_of(*content, path + ".content", value);
  } else if (out["role"] == "assistant" && has_string(message, "refusal")) {
    out["content"] = message["refusal"];  // what the model said instead
  } else if (out.contains("tool_calls") || out.contains("reasoning_content")) {
    out["content"] = "";  // templates concatenate it with strings
  } else {
    throw invalid_field(path + ".content",
                        str(path, ".content: expected a string or a list of text parts, got ",
                            content == message.end() ? "nothing" : "null", "."));
  }
}

// "reasoning" is the name that vLLM, LiteLLM and OpenRouter give to "reasoning_content".
void add_reasoning(const OrderedJson& message, const std::string& path, const FieldValue& value,
                   OrderedJson& out) {
  const auto content = message.find("reasoning_content");
  const bool has_content = content != message.end() && !content->is_null();
  if (has_content) {
    out["reasoning_content"] = string_member(message, "reasoning_content", path, SIZE_MAX);
  }
  const auto reasoning = message.find("reasoning");
  if (reasoning == message.end() || reasoning->is_null()) return;
  if (!has_content && reasoning->is_string()) {
    out["reasoning_content"] = *reasoning;
  } else if (!has_content || *reasoning != *content) {
    value.ignored.add("messages[]", "reasoning");
  }
}

void add_calls(const OrderedJson& message, const std::string& path, const FieldValue& value,
               OrderedJson& out) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return;
  if (calls->is_array() && calls->empty()) return;
  if (out["role"] != "assistant") {
    throw invalid_field(path + ".tool_calls",
                        str(path, ".tool_calls: expected no such member in a message of role ",
                            out["role"].get<std::string>(), ". Leave it out."));
  }
  out["tool_calls"] = calls_of(*calls, path + ".tool_calls", value);
}

OrderedJson message_of(const OrderedJson& message, const std::string& path,
                       const FieldValue& value) {
  check_members(message, path, ObjectKind::kMessage, value);
  OrderedJson out = OrderedJson::object();
  out["role"] = role_of(message, path);
  add_calls(message, path, value, out);
  add_reasoning(message, path, value, out);
  add_content(message, path, value, out);
  for (const char* name : {"name", "tool_call_id"}) {
    const auto member = message.find(name);
    if (member == message.end() || member->is_null()) continue;
    out[name] = string_member(message, name, path, kNameBytesMax);
  }
  return out;
}

}  // namespace

OrderedJson arguments_member(const OrderedJson& call, const std::string& path) {
  const auto member = call.find("arguments");
  if (member == call.end() || member->is_null()) return OrderedJson::object();
  const std::string text = string_member(call, "arguments", path, kArgumentsBytesMax);
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

void store_messages(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = value.json;
  if (!json.is_array() || json.empty() || json.size() > kMessagesMax) {
    throw invalid_field(value.name,
                        str("messages: expected a list of 1 to ", kMessagesMax, " messages, got ",
                            json.is_array() ? str(json.size()) : kind_in_words(json), "."));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    request.messages.push_back(message_of(json[i], str("messages[", i, "]"), value));
  }
}

}  // namespace halley
