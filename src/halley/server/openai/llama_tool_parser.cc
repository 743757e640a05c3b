// Llama 3's dialect: the whole answer is JSON of one call, or of several with ';' between them.
#include <string>
#include <utility>

#include "halley/server/openai/json_extent.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

class LlamaParser : public ToolCallParser {
 public:
  explicit LlamaParser(std::span<const ApiTool> tools) : tools_(tools) {}

  void push(std::string_view text, ToolOutput& output) override {
    pending_ += text;
    while (step(output)) {
    }
  }

  void finish(ToolOutput& output) override {
    if (state_ == State::kBehind) {
      // What may have been the beginning of another call.
      const size_t spaces = num_leading_spaces(pending_);
      if (spaces < pending_.size() && pending_.substr(spaces) != ";") output.content += pending_;
    } else {
      output.content += pending_;
    }
    pending_.clear();
  }

 private:
  enum class State : uint8_t { kStart, kCall, kBehind, kContent };

  // False: more text is needed. What is pending begins with all that is not given out.
  bool step(ToolOutput& output) {
    switch (state_) {
      case State::kStart:
        return read_start();
      case State::kCall:
        return read_call(output);
      case State::kBehind:
        return read_behind();
      case State::kContent:
        break;
    }
    output.content += pending_;
    pending_.clear();
    return false;
  }

  bool read_start() {
    call_start_ = num_leading_spaces(pending_);
    const std::string_view text = std::string_view(pending_).substr(call_start_);
    if (text.empty()) return false;
    if (text.starts_with(kPythonTag)) {
      call_start_ += kPythonTag.size();
      call_start_ += num_leading_spaces(text.substr(kPythonTag.size()));
      if (call_start_ == pending_.size()) return false;
    } else if (kPythonTag.starts_with(text)) {
      return false;
    }
    return begin_call(pending_[call_start_] == '{');
  }

  bool begin_call(bool is_call) {
    state_ = is_call ? State::kCall : State::kContent;
    extent_.restart();
    return true;
  }

  bool read_call(ToolOutput& output) {
    const std::string_view text = std::string_view(pending_).substr(call_start_);
    const auto num_json = extent_.find_end(text);
    if (!num_json) return false;
    auto call = parse_tool_call(text.substr(0, *num_json), tools_);
    state_ = call ? State::kBehind : State::kContent;
    if (!call) return true;
    output.calls.push_back(std::move(*call));
    pending_.erase(0, call_start_ + *num_json);
    return true;
  }

  bool read_behind() {
    const std::string_view text = pending_;
    call_start_ = num_leading_spaces(text);
    if (call_start_ == text.size()) return false;
    if (text[call_start_] == ';') {
      ++call_start_;
      call_start_ += num_leading_spaces(text.substr(call_start_));
      if (call_start_ == text.size()) return false;
    }
    return begin_call(text[call_start_] == '{');
  }

  const std::span<const ApiTool> tools_;
  State state_ = State::kStart;
  std::string pending_;    // not given out yet
  size_t call_start_ = 0;  // of the JSON in it
  JsonExtent extent_;
};

}  // namespace

std::unique_ptr<ToolCallParser> make_llama_parser(std::span<const ApiTool> tools) {
  return std::make_unique<LlamaParser>(tools);
}

}  // namespace halley
