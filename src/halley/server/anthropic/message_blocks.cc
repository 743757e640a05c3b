#include "halley/server/anthropic/message_blocks.h"

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

constexpr size_t kMessagesMax = 4096;
constexpr size_t kBlocksMax = 1024;
constexpr size_t kIdBytesMax = 256;

constexpr ObjectMembers kMessage = {
    .path = "messages[]", .is_open = true, .read = {"role", "content"}};
constexpr ObjectMembers kSystemBlock = {
    .path = "system[]", .is_open = true, .read = {"type", "text"}};
constexpr ObjectMembers kTextBlock = {
    .path = "messages[].content[]", .is_open = true, .read = {"type", "text"}};
constexpr ObjectMembers kThinkingBlock = {.path = "messages[].content[]",
                                          .is_open = true,
                                          .read = {"type", "thinking"},
                                          .neutral = {"signature"}};
constexpr ObjectMembers kToolUseBlock = {.path = "messages[].content[]",
                                         .is_open = true,
                                         .read = {"type", "id", "name", "input"},
                                         .neutral = {"caller"}};
constexpr ObjectMembers kToolResultBlock = {
    .path = "messages[].content[]", .is_open = true, .read = {"type", "tool_use_id", "content"}};

void add_line(const std::string& line, std::string& text) {
  if (!text.empty()) text += '\n';
  text += line;
}

std::string type_of(const OrderedJson& block, const std::string& path) {
  expect_object(block, path);
  return string_member(block, "type", path, SIZE_MAX);
}

[[noreturn]] void reject_type(const std::string& type, const char* expected,
                              const std::string& path) {
  throw invalid_field(path + ".type",
                      str(path, ".type: expected ", expected, ", got ", quote(type, 40),
                          ". The model reads text alone: images, documents and tools that a "
                          "server runs are not supported."));
}

void check_list(const OrderedJson& list, const std::string& path, size_t max, const char* what) {
  if (list.is_array() && list.size() <= max) return;
  throw invalid_field(
      path, str(path, ": expected a string or a list of at most ", max, " ", what, ", got ",
                list.is_array() ? str(list.size()) : kind_in_words(list), "."));
}

// A text, or text blocks, which are joined by line ends.
std::string text_of(const OrderedJson& content, const std::string& path, const ObjectMembers& row,
                    const FieldValue& value) {
  if (content.is_string()) return content.get<std::string>();
  check_list(content, path, kBlocksMax, "text blocks");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string block_path = str(path, "[", i, "]");
    const std::string type = type_of(content[i], block_path);
    if (type != "text") reject_type(type, "text", block_path);
    check_members(content[i], block_path, row, value);
    add_line(string_member(content[i], "text", block_path, SIZE_MAX), text);
  }
  return text;
}

/// Makes messages of one message's blocks.
class BlockReader {
 public:
  BlockReader(std::string role, const FieldValue& value, OrderedJson& messages)
      : role_(std::move(role)), value_(value), messages_(messages) {}

  void add(const OrderedJson& block, const std::string& path) {
    const std::string type = type_of(block, path);
    if (type == "text") return add_text(block, path);
    if (role_ == "assistant") return add_of_assistant(type, block, path);
    if (type != "tool_result" || role_ != "user") {
      reject_type(type, role_ == "user" ? "text or tool_result" : "text", path);
    }
    add_result(block, path);
  }

  // Puts in what has not become a message yet; a message without blocks is an empty one.
  void finish() {
    const bool has_message = has_result_ && text_.empty();
    if (!has_message) flush();
  }

 private:
  void add_text(const OrderedJson& block, const std::string& path) {
    check_members(block, path, kTextBlock, value_);
    add_line(string_member(block, "text", path, SIZE_MAX), text_);
  }

  void add_of_assistant(const std::string& type, const OrderedJson& block,
                        const std::string& path) {
    if (type == "thinking") {
      check_members(block, path, kThinkingBlock, value_);
      add_line(string_member(block, "thinking", path, SIZE_MAX), thinking_);
    } else if (type == "redacted_thinking") {
      value_.ignored.add("messages[].content[]", "redacted_thinking");
    } else if (type == "tool_use") {
      check_members(block, path, kToolUseBlock, value_);
      calls_.push_back({{"id", string_member(block, "id", path, kIdBytesMax)},
                        {"type", "function"},
                        {"function",
                         {{"name", string_member(block, "name", path, kIdBytesMax)},
                          {"arguments", object_member(block, "input", path)}}}});
    } else {
      reject_type(type, "text, thinking or tool_use", path);
    }
  }

  void add_result(const OrderedJson& block, const std::string& path) {
    if (!text_.empty()) flush();
    check_members(block, path, kToolResultBlock, value_);
    const auto content = block.find("content");
    const bool has_content = content != block.end() && !content->is_null();
    messages_.push_back(
        {{"role", "tool"},
         {"content",
          has_content ? text_of(*content, path + ".content", kTextBlock, value_) : std::string()},
         {"tool_call_id", string_member(block, "tool_use_id", path, kIdBytesMax)}});
    has_result_ = true;
  }

  void flush() {
    OrderedJson message = {{"role", role_}, {"content", std::exchange(text_, {})}};
    if (!thinking_.empty()) message["reasoning_content"] = std::exchange(thinking_, {});
    if (!calls_.empty()) message["tool_calls"] = std::exchange(calls_, OrderedJson::array());
    messages_.push_back(std::move(message));
  }

  const std::string role_;
  const FieldValue& value_;
  OrderedJson& messages_;
  std::string text_, thinking_;
  OrderedJson calls_ = OrderedJson::array();
  bool has_result_ = false;
};

void add_message(const OrderedJson& json, const std::string& path, const FieldValue& value,
                 OrderedJson& messages) {
  check_members(json, path, kMessage, value);
  std::string role = string_member(json, "role", path, SIZE_MAX);
  if (role != "user" && role != "assistant" && role != "system") {
    throw invalid_field(path + ".role", str(path, ".role: expected user, assistant or system, got ",
                                            quote(role, 40), "."));
  }
  const std::string where = path + ".content";
  const auto content = json.find("content");
  if (content == json.end()) {
    throw invalid_field(where, str(where, ": expected a string or a list of blocks, got nothing."));
  }
  if (content->is_string()) {
    messages.push_back({{"role", std::move(role)}, {"content", *content}});
    return;
  }
  check_list(*content, where, kBlocksMax, "blocks");
  BlockReader reader(std::move(role), value, messages);
  for (size_t i = 0; i < content->size(); ++i) {
    reader.add((*content)[i], str(where, "[", i, "]"));
  }
  reader.finish();
}

}  // namespace

void store_system(const FieldValue& value, ApiRequest& request) {
  const std::string text = text_of(value.json, value.name, kSystemBlock, value);
  if (!text.empty()) request.messages.push_back({{"role", "system"}, {"content", text}});
}

void store_message_list(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = value.json;
  if (!json.is_array() || json.empty() || json.size() > kMessagesMax) {
    throw invalid_field(
        value.name, str(value.name, ": expected a list of 1 to ", kMessagesMax, " messages, got ",
                        json.is_array() ? str(json.size()) : kind_in_words(json), "."));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    add_message(json[i], str(value.name, "[", i, "]"), value, request.messages);
  }
  const OrderedJson& last = request.messages.back();
  request.continues_final_message = last["role"] == "assistant" && !last.contains("tool_calls");
}

}  // namespace halley
