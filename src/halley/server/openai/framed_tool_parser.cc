// Dialects in which markers stand around each call, with its name and JSON of its arguments between
// them: Kimi K2, DeepSeek and OpenAI's harmony.
#include <array>
#include <string>
#include <utility>

#include "halley/server/openai/harmony.h"
#include "halley/server/openai/json_extent.h"
#include "halley/server/openai/tool_call_reader.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

constexpr size_t kHeadBytesMax = 512;  // a name, an id and marks

/// The format of a dialect.
struct CallFrame {
  std::string_view section;  // before the first call; empty: nothing
  std::string_view open;
  std::array<std::string_view, 3> closing;  // what may stand behind a call, between white space
  /// Gives a call's name, and its id, from the text between `open` and the arguments; an empty
  /// name: it is no call.
  ToolCall (*call_of)(std::string_view head);
};

// "functions.get_weather:0<|tool_call_argument_begin|>": the first part is the id too.
ToolCall kimi_call(std::string_view head) {
  constexpr std::string_view kArguments = "<|tool_call_argument_begin|>";
  head = trimmed(head);
  if (!head.ends_with(kArguments)) return {};
  head = trimmed(head.substr(0, head.size() - kArguments.size()));
  std::string_view name = head.substr(0, head.rfind(':'));
  constexpr std::string_view kNamespace = "functions.";
  if (name.starts_with(kNamespace)) name.remove_prefix(kNamespace.size());
  return {.id = std::string(head), .name = std::string(name), .arguments = {}};
}

// V3: "function<｜tool▁sep｜>NAME\n```json\n"; V3.1: "NAME<｜tool▁sep｜>".
ToolCall deepseek_call(std::string_view head) {
  constexpr std::string_view kSeparator = "<｜tool▁sep｜>", kFence = "```json";
  const size_t separator = head.find(kSeparator);
  if (separator == std::string_view::npos) return {};
  std::string_view behind = trimmed(head.substr(separator + kSeparator.size()));
  if (behind.ends_with(kFence)) {
    behind = trimmed(behind.substr(0, behind.size() - kFence.size()));
  } else if (!behind.empty()) {
    return {};
  }
  const std::string_view name = behind.empty() ? trimmed(head.substr(0, separator)) : behind;
  return {.id = {}, .name = std::string(name), .arguments = {}};
}

// "NAME <|constrain|>json<|message|>".
ToolCall harmony_call(std::string_view head) {
  head = trimmed(head);
  if (!head.ends_with(kHarmonyMessage)) return {};
  return {.id = {},
          .name = std::string(head.substr(0, head.find_first_of(" \t\r\n<"))),
          .arguments = {}};
}

constexpr CallFrame kKimi = {"<|tool_calls_section_begin|>",
                             "<|tool_call_begin|>",
                             {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
                             kimi_call};
constexpr CallFrame kDeepseek = {"<｜tool▁calls▁begin｜>",
                                 "<｜tool▁call▁begin｜>",
                                 {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
                                 deepseek_call};
constexpr CallFrame kHarmony = {"", kHarmonyCallOpen, {kHarmonyCall}, harmony_call};

// Drops white space between content and a call.
class FramedParser : public ToolCallParser {
 public:
  FramedParser(const CallFrame& frame, std::span<const ApiTool> tools)
      : frame_(frame),
        begins_({frame.section, frame.open}),
        behind_({frame.open, frame.section, frame.closing[0], frame.closing[1], frame.closing[2]}),
        tools_(tools) {}

  void push(std::string_view text, ToolOutput& output) override {
    while (!text.empty()) text.remove_prefix(step(text, output));
  }

  void finish(ToolOutput& output) override {
    if (state_ != State::kBehind) output.content += held_;
    held_.clear();
  }

 private:
  enum class State {
    kContent,    // held: white space, and a possible beginning of a marker
    kSection,    // held: the marker, and white space or the beginning of frame_.open
    kHead,       // held: all from the first marker on
    kArguments,  // emitted as they arrive
    kBehind,     // held: white space and a possible beginning of a marker
  };

  // Returns the number of bytes consumed from `text`.
  size_t step(std::string_view text, ToolOutput& output) {
    switch (state_) {
      case State::kContent:
        return read_content(text, output);
      case State::kHead:
        return read_head(text.front(), output);
      case State::kArguments:
        return read_arguments(text, output);
      case State::kSection:
      case State::kBehind:
        break;
    }
    held_ += text.front();
    state_ == State::kSection ? read_section(output) : read_behind(output);
    return 1;
  }

  size_t read_content(std::string_view text, ToolOutput& output) {
    const size_t num_before = held_.size();
    held_ += text;
    const auto found = find_marker(held_, begins_);
    size_t end = found ? found->start : held_.size() - num_bytes_of_markers(held_, begins_);
    end -= num_trailing_spaces(std::string_view(held_).substr(0, end));
    output.content.append(held_, 0, end);
    if (!found) {
      held_.erase(0, end);
      return text.size();
    }
    const size_t num_taken = found->start + found->marker.size();
    held_ = held_.substr(end, num_taken - end);
    num_opening_ = held_.size();
    state_ = found->marker == frame_.open ? State::kHead : State::kSection;
    return num_taken - num_before;
  }

  void read_section(ToolOutput& output) {
    const std::string_view text = trimmed_behind(num_opening_);
    if (text.empty() && held_.size() - num_opening_ <= kHeldSpacesMax) return;
    if (text == frame_.open) {
      num_opening_ = held_.size();
      state_ = State::kHead;
    } else if (text.empty() || !frame_.open.starts_with(text)) {
      give_up(output);
    }
  }

  size_t read_head(char c, ToolOutput& output) {
    if (c != '{') {
      held_ += c;
      if (held_.size() - num_opening_ > kHeadBytesMax) give_up(output);
      return 1;
    }
    ToolCall call = frame_.call_of(std::string_view(held_).substr(num_opening_));
    if (!has_tool(tools_, call.name)) {
      give_up(output);
      return 0;
    }
    output.calls.push_back(std::move(call));
    held_.clear();
    arguments_.restart();
    state_ = State::kArguments;
    return 0;
  }

  size_t read_arguments(std::string_view text, ToolOutput& output) {
    const auto end = arguments_.feed(text);
    if (end) state_ = State::kBehind;
    const size_t num_taken = end.value_or(text.size());
    add_arguments(text.substr(0, num_taken), output);
    return num_taken;
  }

  void read_behind(ToolOutput& output) {
    const std::string_view text = trimmed_behind(0);
    if (text.empty() && held_.size() <= kHeldSpacesMax) return;
    const MarkerAtStart found = marker_at_start(text, behind_);
    if (found.match == MarkerMatch::kPart && !text.empty()) return;
    if (found.match == MarkerMatch::kWhole) {
      const bool is_call = found.marker == frame_.open;
      if (!is_call) {
        held_.clear();
        return;
      }
      num_opening_ = held_.size();
      state_ = State::kHead;
      return;
    }
    state_ = State::kContent;
    push(std::exchange(held_, {}), output);
  }

  // The first marker is content after all; what follows it may hold another one.
  void give_up(ToolOutput& output) {
    const std::string text = std::exchange(held_, {});
    state_ = State::kContent;
    output.content += text.substr(0, num_opening_);
    push(text.substr(num_opening_), output);
  }

  std::string_view trimmed_behind(size_t begin) const {
    std::string_view text = std::string_view(held_).substr(begin);
    text.remove_prefix(num_leading_spaces(text));
    return text;
  }

  const CallFrame& frame_;
  const std::array<std::string_view, 2> begins_;
  const std::array<std::string_view, 5> behind_;
  const std::span<const ApiTool> tools_;
  State state_ = State::kContent;
  std::string held_;
  size_t num_opening_ = 0;  // bytes of held_ up to the last marker
  JsonExtent arguments_;
};

}  // namespace

std::unique_ptr<ToolCallParser> make_kimi_parser(std::span<const ApiTool> tools) {
  return std::make_unique<FramedParser>(kKimi, tools);
}

std::unique_ptr<ToolCallParser> make_deepseek_parser(std::span<const ApiTool> tools) {
  return std::make_unique<FramedParser>(kDeepseek, tools);
}

std::unique_ptr<ToolCallParser> make_harmony_tool_parser(std::span<const ApiTool> tools) {
  return std::make_unique<FramedParser>(kHarmony, tools);
}

}  // namespace halley
