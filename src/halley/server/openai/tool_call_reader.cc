#include "halley/server/openai/tool_call_reader.h"

#include <optional>
#include <utility>

#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

// A name and the text that models write around it. A longer head is not parsed with each piece.
constexpr size_t kHeadBytesMax = 1024;

/// The information at the beginning of an object.
struct Head {
  enum class Kind { kNeedsMore, kCall, kUnclear };
  Kind kind = Kind::kUnclear;
  std::string name = {};
  size_t arguments = 0;  // index of the arguments' object
};

// The index after the closing quote of the string at `start`.
std::optional<size_t> end_of_string(std::string_view text, size_t start) {
  for (size_t i = start + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return std::nullopt;
}

std::optional<size_t> end_of_value(std::string_view text, size_t start) {
  if (text[start] == '"') return end_of_string(text, start);
  if (text[start] == '{' || text[start] == '[') {
    const auto size = JsonExtent().feed(text.substr(start));
    return size ? std::optional(start + *size) : std::nullopt;
  }
  const size_t end = text.find_first_of(",]} \t\r\n", start);
  return end == std::string_view::npos ? std::nullopt : std::optional(end);
}

/// Walks over the members of an incomplete object.
class HeadReader {
 public:
  HeadReader(std::string_view text, std::span<const ApiTool> tools) : text_(text), tools_(tools) {}

  Head read() {
    using Kind = Head::Kind;
    std::string name;
    for (;;) {
      if (!skip_spaces()) return {Kind::kNeedsMore};
      if (text_[at_] != '"') return {Kind::kUnclear};
      const auto key_end = end_of_string(text_, at_);
      if (!key_end) return {Kind::kNeedsMore};
      const std::string_view key = text_.substr(at_, *key_end - at_);
      at_ = *key_end;
      if (!skip_spaces()) return {Kind::kNeedsMore};
      if (text_[at_++] != ':') return {Kind::kUnclear};
      if (!skip_spaces()) return {Kind::kNeedsMore};
      if (key == "\"arguments\"" || key == "\"parameters\"") {
        if (name.empty() || text_[at_] != '{') return {Kind::kUnclear};
        return {Kind::kCall, std::move(name), at_};
      }
      const auto value_end = end_of_value(text_, at_);
      if (!value_end) return {Kind::kNeedsMore};
      const std::string_view value = text_.substr(at_, *value_end - at_);
      at_ = *value_end;
      if (key == "\"name\"") {
        const OrderedJson json = parse_json_or_null(value);
        if (!name.empty() || !json.is_string() || !has_tool(tools_, json.get<std::string>())) {
          return {Kind::kUnclear};
        }
        name = json.get<std::string>();
      }
      if (!skip_spaces()) return {Kind::kNeedsMore};
      if (text_[at_++] != ',') return {Kind::kUnclear};
    }
  }

 private:
  // Returns false if no byte after them has arrived yet.
  bool skip_spaces() {
    at_ += num_leading_spaces(text_.substr(at_));
    return at_ < text_.size();
  }

  const std::string_view text_;
  const std::span<const ApiTool> tools_;
  size_t at_ = 1;  // after '{'
};

}  // namespace

void add_arguments(std::string_view text, ToolOutput& output) {
  if (text.empty()) return;
  if (output.calls.empty()) output.calls.emplace_back();
  output.calls.back().arguments += text;
}

void ToolCallReader::restart() {
  state_ = State::kOpen;
  held_.clear();
  object_.restart();
  arguments_.restart();
  is_read_whole_ = has_all_arguments_ = false;
}

size_t ToolCallReader::push(std::string_view text, ToolOutput& output) {
  const auto end = object_.feed(text);
  const std::string_view taken = text.substr(0, end.value_or(text.size()));
  if (state_ == State::kCall) {
    give_arguments(taken, output);
  } else {
    held_ += taken;
    if (!is_read_whole_) read_head(output);
  }
  if (end) finish_object(output);
  return taken.size();
}

void ToolCallReader::finish_object(ToolOutput& output) {
  if (state_ == State::kOpen) {
    auto call = parse_tool_call(held_, tools_);
    if (!call) {
      state_ = State::kNoCall;
      return;
    }
    output.calls.push_back(
        {.name = std::move(call->name), .arguments = std::move(call->arguments)});
    held_.clear();
  }
  state_ = State::kDone;
}

void ToolCallReader::read_head(ToolOutput& output) {
  // At most these bytes, however many came at once: the result must not depend on the pieces.
  Head head = HeadReader(std::string_view(held_).substr(0, kHeadBytesMax), tools_).read();
  switch (head.kind) {
    case Head::Kind::kNeedsMore:
      is_read_whole_ = held_.size() >= kHeadBytesMax;
      return;
    case Head::Kind::kUnclear:
      is_read_whole_ = true;
      return;
    case Head::Kind::kCall:
      break;
  }
  state_ = State::kCall;
  output.calls.push_back({.name = std::move(head.name), .arguments = {}});
  give_arguments(std::string_view(held_).substr(head.arguments), output);
  held_.clear();
}

void ToolCallReader::give_arguments(std::string_view text, ToolOutput& output) {
  if (has_all_arguments_) return;  // skips the end of the object around them
  const auto end = arguments_.feed(text);
  has_all_arguments_ = end.has_value();
  add_arguments(text.substr(0, end.value_or(text.size())), output);
}

}  // namespace halley
