#include "halley/server/openai/harmony.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "halley/server/openai/text_marker.h"

namespace halley {
namespace {

constexpr size_t kHeaderBytesMax = 512;  // a role, a channel, a tool's name and marks

constexpr std::array<std::string_view, 5> kBodyEnds = {kHarmonyEnd, kHarmonyReturn, kHarmonyCall,
                                                       kHarmonyStart, kHarmonyChannel};
constexpr std::array<std::string_view, 2> kHeaderMarks = {kHarmonyStart, kHarmonyChannel};
constexpr std::string_view kRole = "assistant";
constexpr std::array<std::string_view, 3> kBeforeChannel = {kHarmonyStart, kHarmonyMessage, "to="};
constexpr std::array<std::string_view, 3> kChannels = {"analysis", "commentary", "final"};
// These may stand behind a channel's name; the last two name the type of the content.
constexpr std::array<std::string_view, 4> kBehindChannel = {"to=", "<|", "json", "code"};

// Removes `prefix`, of which there may be the beginning alone.
bool skip_prefix(std::string_view prefix, std::string_view& text) {
  if (!prefix.starts_with(text.substr(0, prefix.size()))) return false;
  text.remove_prefix(std::min(text.size(), prefix.size()));
  return true;
}

bool is_beginning_of_any(std::string_view text, std::span<const std::string_view> markers) {
  return marker_at_start(text, markers).match != MarkerMatch::kNone;
}

// Whether the text is a header up to its "<|message|>", or the beginning of one.
bool is_header(std::string_view text) {
  text.remove_prefix(num_leading_spaces(text));
  if (text.starts_with(kHarmonyStart)) {
    text.remove_prefix(kHarmonyStart.size());
    if (!skip_prefix(kRole, text)) return false;
    text.remove_prefix(num_leading_spaces(text));
  }
  if (is_beginning_of_any(text, kBeforeChannel)) return true;
  if (!skip_prefix(kHarmonyChannel, text)) return false;
  for (const std::string_view channel : kChannels) {
    std::string_view rest = text;
    if (!skip_prefix(channel, rest)) continue;
    rest.remove_prefix(num_leading_spaces(rest));
    return rest.empty() || is_beginning_of_any(rest, kBehindChannel);
  }
  return false;
}

// The word behind `mark`, up to white space or a marker.
std::string_view word_behind(std::string_view header, std::string_view mark) {
  const size_t begin = header.find(mark);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = header.substr(begin + mark.size());
  return rest.substr(0, rest.find_first_of(" \t\r\n<"));
}

// From the text of reasoning to the answer, and the part of it before the channel.
constexpr std::string_view kHarmonyEnding = "<|end|><|start|>assistant<|channel|>final<|message|>";
constexpr std::string_view kHeaderOfEnding = "<|end|><|start|>assistant";

class HarmonyParser : public ReasoningParser {
 public:
  explicit HarmonyParser(const ReasoningStart& start) {
    ReasoningOutput unused;
    push(start.prompt_end, unused);
    num_prompt_bytes_ = held_.size();
    needs_separator_ = {};
  }

  void push(std::string_view text, ReasoningOutput& output) override {
    while (!text.empty()) text.remove_prefix(step(text, output));
  }

  void finish(ReasoningOutput& output) override {
    // The beginning of a header is no text.
    if (state_ != State::kHeader) emit(held_, output);
    held_.clear();
  }

  ReasoningPhase phase() const override {
    switch (state_) {
      case State::kReasoning:
        return ReasoningPhase::kReasoning;
      case State::kHeader:
        if (has_answer_) return ReasoningPhase::kAnswer;
        return has_reasoning_ ? ReasoningPhase::kBetween : ReasoningPhase::kReasoning;
      case State::kContent:
      case State::kCall:
        break;
    }
    return ReasoningPhase::kAnswer;
  }

  std::string_view ending() const override {
    if (state_ == State::kReasoning) return kHarmonyEnding;
    if (phase() == ReasoningPhase::kAnswer) return {};
    // Not in the middle of a header.
    if (held_.empty()) return kHarmonyEnding.substr(kHarmonyEnd.size());
    return held_.size() == num_prompt_bytes_ ? kHarmonyEnding.substr(kHeaderOfEnding.size())
                                             : std::string_view();
  }

 private:
  enum class State { kHeader, kReasoning, kContent, kCall };

  // Returns the number of bytes consumed from `text`.
  size_t step(std::string_view text, ReasoningOutput& output) {
    if (state_ != State::kHeader) return read_body(text, output);
    held_ += text.front();
    read_header(output);
    return 1;
  }

  void read_header(ReasoningOutput& output) {
    if (held_.ends_with(kHarmonyMessage)) return begin_message(output);
    if (is_header(held_) && held_.size() < kHeaderBytesMax) return;
    state_ = State::kContent;
    has_answer_ = true;
    // The first marker is content after all; what follows it may hold another one.
    const std::string text = take_held();
    const size_t num_spaces = num_leading_spaces(text);
    const MarkerAtStart found =
        marker_at_start(std::string_view(text).substr(num_spaces), kHeaderMarks);
    const size_t num_opening = num_spaces + found.marker.size();
    emit(text.substr(0, num_opening), output);
    push(text.substr(num_opening), output);
  }

  void begin_message(ReasoningOutput& output) {
    const std::string_view recipient = word_behind(held_, "to=");
    if (!recipient.empty()) {
      state_ = State::kCall;
      output.content.append("<|channel|>commentary to=").append(recipient).append(kHarmonyMessage);
    } else if (word_behind(held_, kHarmonyChannel) == "analysis") {
      state_ = State::kReasoning;
      has_reasoning_ = true;
    } else {
      state_ = State::kContent;
    }
    has_answer_ = has_answer_ || state_ != State::kReasoning;
    is_new_message_ = true;
    num_prompt_bytes_ = 0;
    held_.clear();
  }

  size_t read_body(std::string_view text, ReasoningOutput& output) {
    const size_t num_before = held_.size();
    held_ += text;
    const auto found = find_marker(held_, kBodyEnds);
    const size_t end = found ? found->start : held_.size() - num_bytes_of_markers(held_, kBodyEnds);
    emit(std::string_view(held_).substr(0, end), output);
    if (!found) {
      held_.erase(0, end);
      return text.size();
    }
    if (state_ == State::kCall) output.content += kHarmonyCall;
    state_ = State::kHeader;
    // A message without an end: the marker begins the next header.
    const bool is_begin = found->marker == kHarmonyStart || found->marker == kHarmonyChannel;
    held_ = is_begin ? std::string(found->marker) : std::string();
    return found->start + found->marker.size() - num_before;
  }

  // Messages of the same kind have a line end between them.
  void emit(std::string_view text, ReasoningOutput& output) {
    if (text.empty()) return;
    const bool is_reasoning = state_ == State::kReasoning;
    std::string& target = is_reasoning ? output.reasoning : output.content;
    bool& needs_separator = needs_separator_[is_reasoning ? 1 : 0];
    if (state_ != State::kCall) {
      if (is_new_message_ && needs_separator) target += '\n';
      needs_separator = true;
    }
    is_new_message_ = false;
    target += text;
  }

  // The held text without what the prompt has of it.
  std::string take_held() {
    std::string text = std::exchange(held_, {}).substr(num_prompt_bytes_);
    num_prompt_bytes_ = 0;
    return text;
  }

  State state_ = State::kHeader;
  std::string held_;             // a header; in a body: a possible beginning of a marker
  size_t num_prompt_bytes_ = 0;  // of held_
  std::array<bool, 2> needs_separator_ = {};  // of content and reasoning
  bool is_new_message_ = false;
  bool has_reasoning_ = false, has_answer_ = false;
};

}  // namespace

std::unique_ptr<ReasoningParser> make_harmony_parser(const ReasoningStart& start) {
  return std::make_unique<HarmonyParser>(start);
}

}  // namespace halley
