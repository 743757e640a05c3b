// Dialects in which JSON of calls is the whole answer: Llama 3's, with ';' between calls, and a
// generic one, a call or a list of calls, also in a block of Markdown.
#include <array>
#include <string>

#include "halley/server/openai/tool_call_reader.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

struct WholeAnswerSyntax {
  std::array<std::string_view, 2> openings;  // one may stand before the calls
  std::string_view closing;                  // and this behind them
  std::string_view separators;               // between calls
  bool may_be_list = false;
};
constexpr WholeAnswerSyntax kLlama3 = {{kPythonTag}, "", ";"};
constexpr WholeAnswerSyntax kGeneric = {{"```json", "```"}, "```", ",;", true};

class WholeAnswerParser : public ToolCallParser {
 public:
  WholeAnswerParser(const WholeAnswerSyntax& syntax, std::span<const ApiTool> tools)
      : syntax_(syntax), reader_(tools) {}

  void push(std::string_view text, ToolOutput& output) override {
    while (!text.empty()) text.remove_prefix(step(text, output));
  }

  void finish(ToolOutput& output) override {
    // After a call only white space, separators and a closing are held, no content.
    if (state_ != State::kBehind) output.content += held_ + reader_.held();
    held_.clear();
    reader_.restart();
  }

 private:
  enum class State { kStart, kCall, kBehind, kContent };

  // Returns the number of bytes consumed from `text`.
  size_t step(std::string_view text, ToolOutput& output) {
    switch (state_) {
      case State::kStart:
      case State::kBehind:
        held_ += text.front();
        state_ == State::kStart ? read_start(output) : read_behind(output);
        return state_ == State::kCall ? 0 : 1;
      case State::kCall:
        return read_call(text, output);
      case State::kContent:
        break;
    }
    output.content += text;
    return text.size();
  }

  // White space, an opening and a bracket may come before the first call.
  void read_start(ToolOutput& output) {
    std::string_view text = held_;
    text.remove_prefix(num_leading_spaces(text));
    const MarkerAtStart opening = marker_at_start(text, syntax_.openings);
    if (opening.match == MarkerMatch::kPart) return;  // `text` may also be white space only
    if (opening.match == MarkerMatch::kWhole) skip(opening.marker, text);
    if (syntax_.may_be_list) skip("[", text);
    if (!text.empty()) begin(text, output);
  }

  void read_behind(ToolOutput& output) {
    std::string_view text = held_;
    text.remove_prefix(num_leading_spaces(text));
    if (!text.empty() && syntax_.separators.find(text.front()) != std::string_view::npos) {
      skip(text.substr(0, 1), text);
    } else if (syntax_.may_be_list) {
      skip("]", text);
    }
    if (text.empty()) return;
    if (marker_at_start(text, {&syntax_.closing, 1}).match == MarkerMatch::kPart) return;
    if (!syntax_.closing.empty()) skip(syntax_.closing, text);
    if (!text.empty()) begin(text, output);
  }

  // Removes `prefix`, where it stands there, and white space behind it.
  static void skip(std::string_view prefix, std::string_view& text) {
    if (!text.starts_with(prefix)) return;
    text.remove_prefix(prefix.size());
    text.remove_prefix(num_leading_spaces(text));
  }

  // `text` is the held beginning of the next call, or content.
  void begin(std::string_view text, ToolOutput& output) {
    if (text == "{") {
      held_.pop_back();  // the reader takes the byte
      reader_.restart();
      state_ = State::kCall;
      return;
    }
    output.content += held_;
    held_.clear();
    state_ = State::kContent;
  }

  size_t read_call(std::string_view text, ToolOutput& output) {
    const size_t num_taken = reader_.push(text, output);
    switch (reader_.state()) {
      case ToolCallReader::State::kOpen:
        break;
      case ToolCallReader::State::kCall:
        held_.clear();
        break;
      case ToolCallReader::State::kDone:
        held_.clear();
        state_ = State::kBehind;
        break;
      case ToolCallReader::State::kNoCall:
        output.content += held_ + reader_.held();
        held_.clear();
        reader_.restart();
        state_ = State::kContent;
        break;
    }
    return num_taken;
  }

  const WholeAnswerSyntax& syntax_;
  State state_ = State::kStart;
  std::string held_;  // text before the reader's: content if no call follows
  ToolCallReader reader_;
};

}  // namespace

std::unique_ptr<ToolCallParser> make_llama_parser(std::span<const ApiTool> tools) {
  return std::make_unique<WholeAnswerParser>(kLlama3, tools);
}

std::unique_ptr<ToolCallParser> make_json_parser(std::span<const ApiTool> tools) {
  return std::make_unique<WholeAnswerParser>(kGeneric, tools);
}

}  // namespace halley
