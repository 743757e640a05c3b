// Dialects in which each argument stands between tags, as text: Qwen3-Coder and GLM 4.5. The parser
// writes JSON of them by the types that the tools declare.
#include <array>
#include <string>
#include <utility>

#include "halley/json/json_text.h"
#include "halley/server/openai/tool_call_reader.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

constexpr size_t kNameBytesMax = 256;  // of a tool or an argument, with white space

/// The format of a dialect. Between its parts there may be white space.
struct XmlSyntax {
  std::string_view call_open;
  std::string_view name_open, name_close;  // empty: the name ends at a line end or a tag
  std::string_view key_open, key_close;
  std::string_view value_open, value_close;
  std::array<std::string_view, 2> closings;  // of a call; each may be left out
  bool has_line_ends;                        // a line end on both sides of a value is none of it
};
constexpr XmlSyntax kQwenCoder = {"<tool_call>",
                                  "<function=",
                                  ">",
                                  "<parameter=",
                                  ">",
                                  "",
                                  "</parameter>",
                                  {"</function>", "</tool_call>"},
                                  true};
constexpr XmlSyntax kGlm = {
    "<tool_call>",    "",   "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
    {"</tool_call>"}, false};

enum class ValueKind { kString, kJson, kUnknown };

// The kind that the tool's schema declares of an argument.
ValueKind kind_of(const ApiTool& tool, const std::string& key) {
  if (!tool.parameters.is_object()) return ValueKind::kUnknown;
  const auto properties = tool.parameters.find("properties");
  if (properties == tool.parameters.end() || !properties->is_object()) return ValueKind::kUnknown;
  const auto schema = properties->find(key);
  if (schema == properties->end() || !schema->is_object()) return ValueKind::kUnknown;
  const auto type = schema->find("type");
  if (type == schema->end() || !type->is_string()) return ValueKind::kUnknown;
  return *type == "string" ? ValueKind::kString : ValueKind::kJson;
}

// A value's JSON: what it is if it is JSON, a constant of Python, or a string.
std::string json_of(std::string_view text) {
  const std::string_view value = trimmed(text);
  if (value == "True") return "true";
  if (value == "False") return "false";
  if (value == "None" || value == "null") return "null";
  if (!parse_json_or_null(value).is_null()) return std::string(value);
  return json_string(text);
}

// Drops white space between content and a call. Emits strings while they arrive.
class XmlParser : public ToolCallParser {
 public:
  XmlParser(const XmlSyntax& syntax, std::span<const ApiTool> tools)
      : syntax_(syntax),
        begins_({syntax.call_open, syntax.name_open}),
        behind_({syntax.call_open, syntax.name_open, syntax.closings[0], syntax.closings[1]}),
        body_({syntax.key_open, syntax.closings[0], syntax.closings[1]}),
        tools_(tools) {}

  void push(std::string_view text, ToolOutput& output) override {
    while (!text.empty()) text.remove_prefix(step(text, output));
  }

  // A call that is cut off stays without its end.
  void finish(ToolOutput& output) override {
    if (state_ == State::kValue) {
      add_value(held_.text, output);
      if (kind_ != ValueKind::kString) add_arguments(value_, output);
    } else if (!is_call_ && state_ != State::kBehind) {
      output.content += held_.text;
    }
    held_.text.clear();
  }

 private:
  enum class State {
    kContent,  // held: white space, and a possible beginning of a marker
    kOpen,     // before the name; from here on all is held until the call is certain
    kName,
    kBody,         // before an argument or the end
    kKey,          // held: from key_open on
    kBeforeValue,  // the same
    kValue,        // held: a line end and a possible beginning of value_close
    kBehind,       // held: white space and a possible beginning of a marker
  };

  // Returns the number of bytes consumed from `text`.
  size_t step(std::string_view text, ToolOutput& output) {
    if (state_ == State::kContent) return read_content(text, output);
    if (state_ == State::kValue) return read_value(text, output);
    const char c = text.front();
    if (state_ == State::kName && ends_name(c)) {
      if (c != '<') held_.text += c;
      end_name(output);
      return c == '<' ? 0 : 1;
    }
    held_.text += c;
    switch (state_) {
      case State::kOpen:
        read_open(output);
        break;
      case State::kName:
        if (held_.text.size() - held_.num_opening > kNameBytesMax) give_up(output);
        break;
      case State::kBody:
        read_body(output);
        break;
      case State::kKey:
        read_key(output);
        break;
      case State::kBeforeValue:
        read_before_value(output);
        break;
      default:
        read_behind(output);
        break;
    }
    return 1;
  }

  size_t read_content(std::string_view text, ToolOutput& output) {
    const auto [num_taken, marker] = held_.take_content(text, begins_, output);
    if (marker.empty()) return num_taken;
    begin_call(marker);
    return num_taken;
  }

  void begin_call(std::string_view marker) {
    held_.mark_opening();
    is_call_ = false;
    const bool has_name = marker == syntax_.name_open || syntax_.name_open.empty();
    state_ = has_name ? State::kName : State::kOpen;
  }

  void read_open(ToolOutput& output) {
    const std::string_view text = held_.behind_opening();
    if (text.empty() && held_.text.size() - held_.num_opening <= kHeldSpacesMax) return;
    if (text == syntax_.name_open) {
      begin_call(syntax_.name_open);
    } else if (text.empty() || !syntax_.name_open.starts_with(text)) {
      give_up(output);
    }
  }

  bool ends_name(char c) const {
    if (!syntax_.name_close.empty()) return c == syntax_.name_close.front();
    return c == '<' || (c == '\n' && !held_.behind_opening().empty());
  }

  void end_name(ToolOutput& output) {
    std::string_view name = trimmed(std::string_view(held_.text).substr(held_.num_opening));
    if (!name.empty() && !syntax_.name_close.empty())
      name = trimmed(name.substr(0, name.size() - 1));
    for (const ApiTool& tool : tools_) {
      if (tool.name != name) continue;
      tool_ = &tool;
      body_start_ = held_.text.size();
      state_ = State::kBody;
      return;
    }
    give_up(output);
  }

  void read_body(ToolOutput& output) {
    const std::string_view text = held_.behind(body_start_);
    if (text.empty() && held_.text.size() - body_start_ <= kHeldSpacesMax) return;
    const MarkerAtStart found = marker_at_start(text, body_);
    if (found.match == MarkerMatch::kPart && !text.empty()) return;
    if (found.match != MarkerMatch::kWhole) {
      is_call_ ? break_off(output) : give_up(output);
      return;
    }
    if (!is_call_) output.calls.push_back({.id = {}, .name = tool_->name, .arguments = {}});
    if (!is_call_) num_arguments_ = 0;
    is_call_ = true;
    held_.text.clear();
    if (found.marker == syntax_.key_open) {
      held_.text = syntax_.key_open;
      state_ = State::kKey;
    } else {
      end_arguments(output);
      state_ = State::kBehind;
    }
  }

  void read_key(ToolOutput& output) {
    if (!std::string_view(held_.text)
             .substr(syntax_.key_open.size())
             .ends_with(syntax_.key_close)) {
      if (held_.text.size() > kNameBytesMax) break_off(output);
      return;
    }
    const size_t num_key = held_.text.size() - syntax_.key_open.size() - syntax_.key_close.size();
    key_ = trimmed(std::string_view(held_.text).substr(syntax_.key_open.size(), num_key));
    body_start_ = held_.text.size();
    state_ = State::kBeforeValue;
    if (syntax_.value_open.empty()) begin_value(output);
  }

  void read_before_value(ToolOutput& output) {
    const std::string_view text = held_.behind(body_start_);
    if (text.empty() && held_.text.size() - body_start_ <= kHeldSpacesMax) return;
    if (text == syntax_.value_open) {
      begin_value(output);
    } else if (text.empty() || !syntax_.value_open.starts_with(text)) {
      break_off(output);
    }
  }

  void begin_value(ToolOutput& output) {
    held_.text.clear();
    value_.clear();
    kind_ = kind_of(*tool_, key_);
    std::string text = num_arguments_++ == 0 ? "{\"" : ", \"";
    append_json_escaped(key_, text);
    text += "\": ";
    if (kind_ == ValueKind::kString) text += '"';
    add_arguments(text, output);
    is_value_start_ = syntax_.has_line_ends;
    state_ = State::kValue;
  }

  size_t read_value(std::string_view text, ToolOutput& output) {
    if (std::exchange(is_value_start_, false) && text.front() == '\n') return 1;
    const size_t num_before = held_.text.size();
    held_.text += text;
    const size_t start = held_.text.find(syntax_.value_close);
    const bool is_end = start != std::string::npos;
    size_t end =
        is_end ? start : held_.text.size() - num_bytes_of_marker(held_.text, syntax_.value_close);
    if (syntax_.has_line_ends && end > 0 && held_.text[end - 1] == '\n') --end;
    add_value(std::string_view(held_.text).substr(0, end), output);
    if (!is_end) {
      held_.text.erase(0, end);
      return text.size();
    }
    held_.text.clear();
    add_arguments(kind_ == ValueKind::kString ? "\"" : json_of(value_), output);
    body_start_ = 0;
    state_ = State::kBody;
    return start + syntax_.value_close.size() - num_before;
  }

  void add_value(std::string_view text, ToolOutput& output) {
    if (kind_ == ValueKind::kString) {
      std::string escaped;
      append_json_escaped(text, escaped);
      add_arguments(escaped, output);
    } else {
      value_ += text;
    }
  }

  void end_arguments(ToolOutput& output) {
    add_arguments(num_arguments_ == 0 ? "{}" : "}", output);
  }

  void read_behind(ToolOutput& output) {
    const std::string_view text = held_.behind(0);
    if (text.empty() && held_.text.size() <= kHeldSpacesMax) return;
    const MarkerAtStart found = marker_at_start(text, behind_);
    if (found.match == MarkerMatch::kPart && !text.empty()) return;
    if (found.match == MarkerMatch::kNone || text.empty()) {
      state_ = State::kContent;
      push(std::exchange(held_.text, {}), output);
    } else if (found.marker == syntax_.call_open || found.marker == syntax_.name_open) {
      begin_call(found.marker);
    } else {
      held_.text.clear();
    }
  }

  // The call ends where something else follows, which is content.
  void break_off(ToolOutput& output) {
    end_arguments(output);
    is_call_ = false;
    state_ = State::kContent;
    push(std::exchange(held_.text, {}), output);
  }

  // The first marker is content after all; what follows it may hold another one.
  void give_up(ToolOutput& output) {
    state_ = State::kContent;
    push(held_.give_up(output), output);
  }

  const XmlSyntax& syntax_;
  const std::array<std::string_view, 2> begins_;
  const std::array<std::string_view, 4> behind_;
  const std::array<std::string_view, 3> body_;
  const std::span<const ApiTool> tools_;
  State state_ = State::kContent;
  HeldText held_;
  size_t body_start_ = 0;          // in held_
  bool is_call_ = false;           // the call was emitted
  const ApiTool* tool_ = nullptr;  // of the call
  size_t num_arguments_ = 0;
  std::string key_, value_;  // the argument; the value unless it is a string
  ValueKind kind_ = ValueKind::kUnknown;
  bool is_value_start_ = false;
};

}  // namespace

std::unique_ptr<ToolCallParser> make_qwen_coder_parser(std::span<const ApiTool> tools) {
  return std::make_unique<XmlParser>(kQwenCoder, tools);
}

std::unique_ptr<ToolCallParser> make_glm_parser(std::span<const ApiTool> tools) {
  return std::make_unique<XmlParser>(kGlm, tools);
}

}  // namespace halley
