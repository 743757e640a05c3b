#include "halley/server/responses/input_items.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"
#include "halley/server/openai/member_table.h"

namespace halley {
namespace {

constexpr size_t kItemsMax = 4096;
constexpr size_t kPartsMax = 1024;
constexpr size_t kIdBytesMax = 256;

constexpr ObjectMembers kMessageItem = {.path = "input[]",
                                        .is_open = true,
                                        .read = {"type", "role", "content"},
                                        .neutral = {"id", "status", "phase"}};
constexpr ObjectMembers kCallItem = {.path = "input[]",
                                     .is_open = true,
                                     .read = {"type", "call_id", "name", "arguments"},
                                     .neutral = {"id", "status"}};
constexpr ObjectMembers kOutputItem = {.path = "input[]",
                                       .is_open = true,
                                       .read = {"type", "call_id", "output"},
                                       .neutral = {"id", "status"}};
constexpr ObjectMembers kReasoningItem = {.path = "input[]",
                                          .is_open = true,
                                          .read = {"type", "content", "summary"},
                                          .neutral = {"id", "status"}};

/// The messages that the items make, as chat templates expect them. Calls and reasoning belong to
/// the assistant's message that they stand next to.
class Conversation {
 public:
  explicit Conversation(OrderedJson& messages) : messages_(messages) {}

  void add_message(const std::string& role, std::string content) {
    OrderedJson message = {{"role", role}, {"content", std::move(content)}};
    // Reasoning before another role's message belongs to no answer.
    const std::string reasoning = std::exchange(reasoning_, {});
    if (!reasoning.empty() && role == "assistant") message["reasoning_content"] = reasoning;
    messages_.push_back(std::move(message));
  }
  void add_call(OrderedJson call) {
    const bool is_assistant_open =
        reasoning_.empty() && !messages_.empty() && messages_.back()["role"] == "assistant";
    if (!is_assistant_open) add_message("assistant", "");
    messages_.back()["tool_calls"].push_back(std::move(call));
  }
  void add_output(const std::string& call_id, std::string content) {
    messages_.push_back(
        {{"role", "tool"}, {"content", std::move(content)}, {"tool_call_id", call_id}});
  }
  void add_reasoning(const std::string& text) {
    if (!reasoning_.empty()) reasoning_ += '\n';
    reasoning_ += text;
  }

 private:
  OrderedJson& messages_;
  std::string reasoning_;
};

// A text, or parts that are joined by line ends, as those of chats are.
std::string text_of(const OrderedJson& item, const char* name, const std::string& path) {
  const std::string where = str(path, ".", name);
  const auto content = item.find(name);
  if (content != item.end() && content->is_string()) return content->get<std::string>();
  if (content == item.end() || !content->is_array() || content->size() > kPartsMax) {
    throw invalid_field(where, str(where, ": expected a string or a list of at most ", kPartsMax,
                                   " text parts, got ",
                                   content == item.end() ? "nothing"
                                   : content->is_array() ? str(content->size())
                                                         : kind_in_words(*content),
                                   "."));
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const OrderedJson& part = (*content)[i];
    const std::string part_path = str(where, "[", i, "]");
    expect_object(part, part_path);
    const std::string type = string_member(part, "type", part_path, SIZE_MAX);
    if (type != "input_text" && type != "output_text" && type != "text" && type != "refusal") {
      throw invalid_field(
          part_path + ".type",
          str(part_path, ".type: expected input_text or output_text, got ", quote(type, 40),
              ". The model reads text alone: images, audio and files are not supported."));
    }
    if (i > 0) text += '\n';
    text += string_member(part, type == "refusal" ? "refusal" : "text", part_path, SIZE_MAX);
  }
  return text;
}

void add_message(const OrderedJson& item, const std::string& path, const FieldValue& value,
                 Conversation& conversation) {
  check_members(item, path, kMessageItem, value);
  const std::string role = string_member(item, "role", path, SIZE_MAX);
  if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
    throw invalid_field(path + ".role",
                        str(path, ".role: expected user, assistant, system or developer, got ",
                            quote(role, 40), "."));
  }
  conversation.add_message(role, text_of(item, "content", path));
}

void add_call(const OrderedJson& item, const std::string& path, const FieldValue& value,
              Conversation& conversation) {
  check_members(item, path, kCallItem, value);
  conversation.add_call({{"id", string_member(item, "call_id", path, kIdBytesMax)},
                         {"type", "function"},
                         {"function",
                          {{"name", string_member(item, "name", path, kIdBytesMax)},
                           {"arguments", arguments_member(item, path)}}}});
}

void add_output(const OrderedJson& item, const std::string& path, const FieldValue& value,
                Conversation& conversation) {
  check_members(item, path, kOutputItem, value);
  conversation.add_output(string_member(item, "call_id", path, kIdBytesMax),
                          text_of(item, "output", path));
}

// The text itself where it is there, else its summary.
void add_reasoning(const OrderedJson& item, const std::string& path, const FieldValue& value,
                   Conversation& conversation) {
  check_members(item, path, kReasoningItem, value);
  for (const char* name : {"content", "summary"}) {
    const auto parts = item.find(name);
    if (parts == item.end() || !parts->is_array() || parts->empty()) continue;
    for (size_t i = 0; i < parts->size(); ++i) {
      const std::string part_path = str(path, ".", name, "[", i, "]");
      expect_object((*parts)[i], part_path);
      conversation.add_reasoning(string_member((*parts)[i], "text", part_path, SIZE_MAX));
    }
    return;
  }
}

struct ItemType {
  std::string_view name;
  void (*add)(const OrderedJson& item, const std::string& path, const FieldValue& value,
              Conversation& conversation);
};
constexpr auto kItemTypes = std::to_array<ItemType>({{"message", add_message},
                                                     {"function_call", add_call},
                                                     {"function_call_output", add_output},
                                                     {"reasoning", add_reasoning}});

void add_item(const OrderedJson& item, const std::string& path, const FieldValue& value,
              Conversation& conversation) {
  expect_object(item, path);
  const auto type = item.find("type");
  const bool has_type = type != item.end() && !type->is_null();
  const std::string name =
      has_type ? string_member(item, "type", path, SIZE_MAX) : std::string("message");
  for (const ItemType& known : kItemTypes) {
    if (name == known.name) return known.add(item, path, value, conversation);
  }
  throw invalid_field(path + ".type", str(path,
                                          ".type: expected message, function_call, "
                                          "function_call_output or reasoning, got ",
                                          quote(name, 40), ", which is not supported."));
}

}  // namespace

void store_input(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = value.json;
  Conversation conversation(request.messages);
  if (json.is_string()) return conversation.add_message("user", json.get<std::string>());
  if (!json.is_array() || json.empty() || json.size() > kItemsMax) {
    throw invalid_field(
        value.name,
        str(value.name, ": expected a string or a list of 1 to ", kItemsMax, " items, got ",
            json.is_array() ? str(json.size()) : kind_in_words(json), "."));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    add_item(json[i], str(value.name, "[", i, "]"), value, conversation);
  }
}

}  // namespace halley
