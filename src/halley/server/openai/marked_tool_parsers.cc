// Dialects in which a marker begins JSON of calls, with content around them: Hermes, Mistral and
// Granite; and lists of calls that are the whole answer.
#include <string>

#include "halley/server/openai/tool_call_reader.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

constexpr std::string_view kMistralArguments = "[ARGS]";
constexpr std::string_view kMistralCallId = "[CALL_ID]";
constexpr size_t kMistralHeadBytesMax = 256;  // a name, an id and marks

/// The text after a marker.
enum class CallSyntax {
  kOne,   // {...}</tool_call>
  kMany,  // [{...}, {...}], or a name and its arguments
};

// Drops white space between content and a call.
class MarkedParser : public ToolCallParser {
 public:
  MarkedParser(std::string_view marker, CallSyntax syntax, std::span<const ApiTool> tools)
      : marker_(marker), syntax_(syntax), tools_(tools), reader_(tools) {}

  /// The text begins after the marker.
  void begin_in_call() { state_ = State::kOpen; }

  void push(std::string_view text, ToolOutput& output) override {
    while (!text.empty()) text.remove_prefix(step(text, output));
  }

  void finish(ToolOutput& output) override {
    // Separators between calls are dropped.
    const bool is_in_list = state_ == State::kItem || state_ == State::kNext;
    const std::string rest = held_ + reader_.held();
    const bool is_blank = rest.find_first_not_of(is_in_list ? " \t\r\n," : " \t\r\n") == rest.npos;
    if (state_ != State::kBehind && !(is_blank && has_call_)) output.content += rest;
    held_.clear();
    reader_.restart();
  }

 private:
  enum class State {
    kContent,    // held: white space, and a possible beginning of a marker
    kOpen,       // after a marker; from here on text is held: it is content if no call follows
    kItem,       // in a list, before a call
    kObject,     // in the object of a call
    kNext,       // in a list, after a call
    kName,       // Mistral's format without a list
    kArguments,  // the same; emitted as they arrive
    kBehind,     // held: a possible closing marker
  };

  // Returns the number of bytes consumed from `text`.
  size_t step(std::string_view text, ToolOutput& output) {
    switch (state_) {
      case State::kContent:
        return read_content(text, output);
      case State::kObject:
        return read_object(text, output);
      case State::kArguments:
        return read_arguments(text, output);
      case State::kName:
        return read_name(text, output);
      case State::kBehind:
        return read_behind(text);
      default:
        break;
    }
    const char c = text.front();
    const bool may_be_object =
        state_ == State::kItem || (state_ == State::kOpen && syntax_ == CallSyntax::kOne);
    if (c == '{' && may_be_object) return begin_object();
    held_ += c;
    if (!is_space(c)) read_sign(c, output);
    return 1;
  }

  size_t begin_object() {
    reader_.restart();
    state_ = State::kObject;
    return 0;
  }

  // Handles a byte after a marker or in a list that is no white space.
  void read_sign(char c, ToolOutput& output) {
    const bool is_list_or_name = state_ == State::kOpen && syntax_ == CallSyntax::kMany;
    if (is_list_or_name && c == '[') {
      state_ = State::kItem;
    } else if (is_list_or_name && c != '{') {
      state_ = State::kName;
      name_start_ = held_.size() - 1;
    } else if (state_ == State::kNext && c == ',') {
      state_ = State::kItem;
    } else if (state_ == State::kNext && c == ']') {
      held_.clear();
      state_ = State::kContent;
    } else {
      give_up(output);
    }
  }

  // The held text is content after all; its end may still begin a marker.
  void give_up(ToolOutput& output) {
    const size_t num_text = held_.size() - num_bytes_of_marker(held_, marker_);
    output.content += held_.substr(0, num_text);
    held_.erase(0, num_text);
    state_ = State::kContent;
  }

  // Emits text that is certainly content.
  size_t read_content(std::string_view text, ToolOutput& output) {
    const size_t num_before = held_.size();
    held_ += text;
    const size_t start = marker_.empty() ? std::string::npos : held_.find(marker_);
    const bool has_marker = start != std::string::npos;
    const size_t end = has_marker ? start : held_.size() - num_bytes_of_marker(held_, marker_);
    const size_t num_text = std::string_view(held_).substr(0, end).find_last_not_of(" \t\r\n") + 1;
    const size_t num_taken = has_marker ? start + marker_.size() - num_before : text.size();
    output.content += held_.substr(0, num_text);
    held_ = held_.substr(num_text, has_marker ? start + marker_.size() - num_text : held_.npos);
    if (has_marker) state_ = State::kOpen;
    return num_taken;
  }

  size_t read_object(std::string_view text, ToolOutput& output) {
    const size_t num_taken = reader_.push(text, output);
    const ToolCallReader::State state = reader_.state();
    if (state == ToolCallReader::State::kOpen) return num_taken;
    if (state == ToolCallReader::State::kNoCall) {
      held_ += reader_.held();
      reader_.restart();
      give_up(output);
      return num_taken;
    }
    has_call_ = true;
    held_.clear();
    if (state == ToolCallReader::State::kDone) {
      state_ = syntax_ == CallSyntax::kMany ? State::kNext : State::kBehind;
    }
    return num_taken;
  }

  // Reads up to the '{' of the arguments: name{...}, name[ARGS]{...}, name[CALL_ID]id[ARGS]{...}
  size_t read_name(std::string_view text, ToolOutput& output) {
    if (text.front() != '{') {
      held_ += text.front();
      if (held_.size() - name_start_ > kMistralHeadBytesMax) give_up(output);
      return 1;
    }
    std::string_view name = std::string_view(held_).substr(name_start_);
    for (const std::string_view mark : {kMistralArguments, kMistralCallId}) {
      name = name.substr(0, name.find(mark));
    }
    while (!name.empty() && is_space(name.back())) name.remove_suffix(1);
    if (!has_tool(tools_, name)) {
      give_up(output);
      return 0;
    }
    output.calls.push_back({.name = std::string(name), .arguments = {}});
    has_call_ = true;
    held_.clear();
    arguments_.restart();
    state_ = State::kArguments;
    return 0;
  }

  size_t read_arguments(std::string_view text, ToolOutput& output) {
    const auto end = arguments_.feed(text);
    if (end) state_ = State::kContent;
    const size_t num_taken = end.value_or(text.size());
    add_arguments(text.substr(0, num_taken), output);
    return num_taken;
  }

  // Skips white space and the closing marker; some models omit the latter.
  size_t read_behind(std::string_view text) {
    std::string_view held = held_;
    held.remove_prefix(num_leading_spaces(held));
    const char c = text.front();
    const bool is_marker = held.size() < kHermesClose.size() && kHermesClose[held.size()] == c;
    if (!is_marker && !(held.empty() && is_space(c))) {
      state_ = State::kContent;  // reads it again: it may begin a marker
      return 0;
    }
    held_ += c;
    if (held.size() + 1 == kHermesClose.size()) {
      held_.clear();
      state_ = State::kContent;
    }
    return 1;
  }

  const std::string marker_;
  const CallSyntax syntax_;
  const std::span<const ApiTool> tools_;
  State state_ = State::kContent;
  std::string held_;
  size_t name_start_ = 0;  // in held_
  bool has_call_ = false;
  ToolCallReader reader_;
  JsonExtent arguments_;
};

}  // namespace

std::unique_ptr<ToolCallParser> make_hermes_parser(std::span<const ApiTool> tools) {
  return std::make_unique<MarkedParser>(kHermesOpen, CallSyntax::kOne, tools);
}

std::unique_ptr<ToolCallParser> make_mistral_parser(std::span<const ApiTool> tools) {
  return std::make_unique<MarkedParser>(kMistralOpen, CallSyntax::kMany, tools);
}

std::unique_ptr<ToolCallParser> make_granite_parser(std::span<const ApiTool> tools) {
  return std::make_unique<MarkedParser>(kGraniteOpen, CallSyntax::kMany, tools);
}

std::unique_ptr<ToolCallParser> make_list_parser(std::span<const ApiTool> tools) {
  auto parser = std::make_unique<MarkedParser>("", CallSyntax::kMany, tools);
  parser->begin_in_call();
  return parser;
}

}  // namespace halley
