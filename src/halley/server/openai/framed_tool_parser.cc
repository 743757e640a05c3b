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
    if (state_ != State::kBehind) output.content += held_.text;
    held_.text.clear();
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
    held_.text += text.front();
    state_ == State::kSection ? read_section(output) : read_behind(output);
    return 1;
  }

  size_t read_content(std::string_view text, ToolOutput& output) {
    const auto [num_taken, marker] = held_.take_content(text, begins_, output);
    if (marker.empty()) return num_taken;
    held_.mark_opening();
    state_ = marker == frame_.open ? State::kHead : State::kSection;
    return num_taken;
  }

  void read_section(ToolOutput& output) {
    const std::string_view text = held_.behind_opening();
    if (text.empty() && held_.text.size() - held_.num_opening <= kHeldSpacesMax) return;
    if (text == frame_.open) {
      held_.mark_opening();
      state_ = State::kHead;
    } else if (text.empty() || !frame_.open.starts_with(text)) {
      give_up(output);
    }
  }

  size_t read_head(char c, ToolOutput& output) {
    if (c != '{') {
      held_.text += c;
      if (held_.text.size() - held_.num_opening > kHeadBytesMax) give_up(output);
      return 1;
    }
    ToolCall call = frame_.call_of(std::string_view(held_.text).substr(held_.num_opening));
    if (!has_tool(tools_, call.name)) {
      give_up(output);
      return 0;
    }
    output.calls.push_back(std::move(call));
    held_.text.clear();
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
    const std::string_view text = held_.behind(0);
    if (text.empty() && held_.text.size() <= kHeldSpacesMax) return;
    const MarkerAtStart found = marker_at_start(text, behind_);
    if (found.match == MarkerMatch::kPart && !text.empty()) return;
    if (found.match == MarkerMatch::kWhole) {
      const bool is_call = found.marker == frame_.open;
      if (!is_call) {
        held_.text.clear();
        return;
      }
      held_.mark_opening();
      state_ = State::kHead;
      return;
    }
    state_ = State::kContent;
    push(std::exchange(held_.text, {}), output);
  }

  // The first marker is content after all; what follows it may hold another one.
  void give_up(ToolOutput& output) {
    state_ = State::kContent;
    push(held_.give_up(output), output);
  }

  const CallFrame& frame_;
  const std::array<std::string_view, 2> begins_;
  const std::array<std::string_view, 5> behind_;
  const std::span<const ApiTool> tools_;
  State state_ = State::kContent;
  HeldText held_;
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
