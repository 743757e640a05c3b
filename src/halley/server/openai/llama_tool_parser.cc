// Llama 3's dialect: the whole answer is JSON of one call, or of several with ';' between them.
#include <string>

#include "halley/server/openai/tool_call_reader.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

class LlamaParser : public ToolCallParser {
 public:
  explicit LlamaParser(std::span<const ApiTool> tools) : reader_(tools) {}

  void push(std::string_view text, ToolOutput& output) override {
    while (!text.empty()) text.remove_prefix(step(text, output));
  }

  void finish(ToolOutput& output) override {
    // After a call only white space and ';' are held, no content.
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

  // White space and the tag may come before the first call.
  void read_start(ToolOutput& output) {
    std::string_view text = held_;
    text.remove_prefix(num_leading_spaces(text));
    if (kPythonTag.starts_with(text)) return;  // `text` may also be white space only
    if (text.starts_with(kPythonTag)) {
      text.remove_prefix(kPythonTag.size());
      text.remove_prefix(num_leading_spaces(text));
      if (text.empty()) return;
    }
    begin(text, output);
  }

  void read_behind(ToolOutput& output) {
    std::string_view text = held_;
    text.remove_prefix(num_leading_spaces(text));
    if (text.starts_with(';')) text.remove_prefix(1);
    text.remove_prefix(num_leading_spaces(text));
    if (!text.empty()) begin(text, output);
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

  State state_ = State::kStart;
  std::string held_;  // text before the reader's: content if no call follows
  ToolCallReader reader_;
};

}  // namespace

std::unique_ptr<ToolCallParser> make_llama_parser(std::span<const ApiTool> tools) {
  return std::make_unique<LlamaParser>(tools);
}

}  // namespace halley
