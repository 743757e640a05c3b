// Llama 4's dialect: the whole answer is a list of calls in Python.
#include <array>
#include <string>
#include <utility>

#include "halley/server/openai/python_literal.h"
#include "halley/server/openai/tool_call_reader.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

constexpr std::string_view kPythonStart = "<|python_start|>", kPythonEnd = "<|python_end|>";
constexpr size_t kNameBytesMax = 256;  // of a tool, with white space

// Emits each argument once it is complete.
class PythonicParser : public ToolCallParser {
 public:
  explicit PythonicParser(std::span<const ApiTool> tools) : tools_(tools) {}

  void push(std::string_view text, ToolOutput& output) override {
    for (; !text.empty() && state_ != State::kContent; text.remove_prefix(1)) {
      held_ += text.front();
      read(text.front(), output);
    }
    output.content += text;
  }

  // A call that is cut off stays without its end and the argument that was not complete.
  void finish(ToolOutput& output) override {
    const bool is_in_call = state_ == State::kArgument && num_arguments_ > 0;
    const bool is_blank = held_.find_first_not_of(" \t\r\n,") == std::string::npos;
    const bool is_dropped = is_in_call || state_ == State::kBehind || (has_call_ && is_blank);
    if (!is_dropped) output.content += held_;
    held_.clear();
  }

 private:
  enum class State {
    kStart,
    kName,      // held: from the beginning, or behind the last call
    kArgument,  // the same until the call was emitted
    kNext,      // behind a call
    kBehind,    // behind the list
    kContent,
  };

  void read(char c, ToolOutput& output) {
    switch (state_) {
      case State::kStart:
        return read_start(output);
      case State::kName:
        return read_name(c, output);
      case State::kArgument:
        return read_argument(c, output);
      case State::kNext:
        return read_next(c, output);
      case State::kBehind:
        return read_behind(output);
      case State::kContent:
        break;
    }
  }

  void read_start(ToolOutput& output) {
    std::string_view text = held_;
    text.remove_prefix(num_leading_spaces(text));
    if (kPythonStart.starts_with(text)) return;  // `text` may also be white space only
    if (text.starts_with(kPythonStart)) text.remove_prefix(kPythonStart.size());
    text.remove_prefix(num_leading_spaces(text));
    if (text.empty()) return;
    if (text != "[") return end_as_content(output);
    begin_name();
  }

  void begin_name() {
    start_ = held_.size();
    state_ = State::kName;
  }

  void read_name(char c, ToolOutput& output) {
    if (c != '(') {
      if (held_.size() - start_ > kNameBytesMax) end_as_content(output);
      return;
    }
    const std::string_view name =
        trimmed(std::string_view(held_).substr(start_, held_.size() - start_ - 1));
    if (!has_tool(tools_, name)) return end_as_content(output);
    name_ = name;
    num_arguments_ = 0;
    begin_argument();
  }

  void begin_argument() {
    start_ = held_.size();
    depth_ = 0;
    quote_ = 0;
    is_escaped_ = false;
    state_ = State::kArgument;
  }

  void read_argument(char c, ToolOutput& output) {
    if (quote_ != 0) {
      if (!std::exchange(is_escaped_, c == '\\' && !is_escaped_) && c == quote_) quote_ = 0;
      return;
    }
    if (c == '"' || c == '\'') quote_ = c;
    if (c == '[' || c == '{' || c == '(') ++depth_;
    const bool is_end = depth_ == 0 && (c == ',' || c == ')');
    if (is_end) return end_argument(c, output);
    if (c == ']' || c == '}' || c == ')') --depth_;
    if (depth_ < 0) end_as_content(output);
  }

  void end_argument(char c, ToolOutput& output) {
    std::string_view text = std::string_view(held_).substr(start_, held_.size() - start_ - 1);
    text.remove_prefix(num_leading_spaces(text));
    std::string json;
    if (!text.empty()) {
      const size_t equals = text.find('=');
      const auto value = equals == std::string_view::npos
                             ? std::nullopt
                             : parse_python_literal(text.substr(equals + 1));
      if (!value) return end_as_content(output);
      const std::string key(trimmed(text.substr(0, equals)));
      json = json_text_of(key) + ": " + json_text_of(*value);
    } else if (c == ',') {
      return end_as_content(output);
    }
    emit(json, output);
    if (c == ',') return begin_argument();
    add_arguments(num_arguments_ == 0 ? "{}" : "}", output);
    name_.clear();
    state_ = State::kNext;
  }

  void emit(const std::string& argument, ToolOutput& output) {
    if (num_arguments_ == 0) {
      output.calls.push_back({.id = {}, .name = name_, .arguments = {}});
      has_call_ = true;
    }
    held_.clear();
    if (argument.empty()) return;
    add_arguments((num_arguments_++ == 0 ? "{" : ", ") + argument, output);
  }

  void read_next(char c, ToolOutput& output) {
    if (is_space(c)) return;
    if (c == ',') return begin_name();
    if (c != ']') return end_as_content(output);
    held_.clear();
    state_ = State::kBehind;
  }

  void read_behind(ToolOutput& output) {
    std::string_view text = held_;
    text.remove_prefix(num_leading_spaces(text));
    if (kPythonEnd.starts_with(text)) {
      if (text == kPythonEnd) held_.clear();
      return;
    }
    end_as_content(output);
  }

  // A call that was begun ends, and the rest is content.
  void end_as_content(ToolOutput& output) {
    if (state_ == State::kArgument && num_arguments_ > 0) add_arguments("}", output);
    output.content += std::exchange(held_, {});
    state_ = State::kContent;
  }

  static std::string json_text_of(const OrderedJson& json) {
    return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }

  const std::span<const ApiTool> tools_;
  State state_ = State::kStart;
  std::string held_;
  size_t start_ = 0;  // of the name or the argument in held_
  std::string name_;
  size_t num_arguments_ = 0;  // emitted, of the call
  int depth_ = 0;             // of brackets in the argument
  char quote_ = 0;            // of the string that it is in; 0: none
  bool is_escaped_ = false;
  bool has_call_ = false;
};

}  // namespace

std::unique_ptr<ToolCallParser> make_pythonic_parser(std::span<const ApiTool> tools) {
  return std::make_unique<PythonicParser>(tools);
}

}  // namespace halley
