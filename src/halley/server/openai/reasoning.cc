#include "halley/server/openai/reasoning.h"

#include <utility>

#include "halley/server/openai/harmony.h"
#include "halley/server/openai/text_marker.h"

namespace halley {
namespace {

// Dialects in which one pair of markers stands around all reasoning, at the beginning.
class MarkedReasoning : public ReasoningParser {
 public:
  explicit MarkedReasoning(const ReasoningStart& start)
      : dialect_(*start.dialect),
        call_marker_(start.looks_for_calls ? dialect_.call_marker : std::string_view()) {
    for (size_t i = 0; i < opens_.size(); ++i) opens_[i] = dialect_.markers[i].open;
    if (!start.is_inside) return;
    pair_ = &dialect_.markers[start.pair_index];
    state_ = State::kOpening;
  }

  void push(std::string_view text, ReasoningOutput& output) override {
    while (!text.empty()) text.remove_prefix(step(text, output));
  }

  void finish(ReasoningOutput& output) override {
    // Behind reasoning, `held_` may begin the answer.
    const bool is_reasoning = state_ == State::kOpening || state_ == State::kInside;
    (is_reasoning ? output.reasoning : output.content) += std::exchange(held_, {});
  }

  ReasoningPhase phase() const override {
    switch (state_) {
      case State::kBefore:
        return ReasoningPhase::kBefore;
      case State::kOpening:
      case State::kInside:
        return ReasoningPhase::kReasoning;
      case State::kBehind:
      case State::kWrapped:
      case State::kAnswer:
        break;
    }
    return ReasoningPhase::kAnswer;
  }

  std::string_view ending() const override {
    return phase() == ReasoningPhase::kReasoning ? pair_->ending : std::string_view();
  }

 private:
  enum class State {
    kBefore,   // held: white space, and a possible beginning of an opening marker
    kOpening,  // no reasoning yet; held: a possible opening marker, as some models repeat it
    kInside,   // held: white space, and a possible beginning of a closing marker
    kBehind,   // no answer yet; held: a possible beginning of answer_open
    kWrapped,  // between answer_open and answer_close
    kAnswer,
  };

  // Returns the number of bytes consumed from `text`.
  size_t step(std::string_view text, ReasoningOutput& output) {
    switch (state_) {
      case State::kBefore:
        return read_before(text.front(), output);
      case State::kOpening:
        return skip_marker(text.front(), opens_, State::kInside, output);
      case State::kInside:
        return read_inside(text, output);
      case State::kBehind:
        return skip_marker(text.front(), {&dialect_.answer_open, 1}, State::kAnswer, output);
      case State::kWrapped:
        return read_wrapped(text, output);
      case State::kAnswer:
        break;
    }
    output.content += text;
    return text.size();
  }

  size_t read_before(char c, ReasoningOutput& output) {
    held_ += c;
    std::string_view text = held_;
    text.remove_prefix(num_leading_spaces(text));
    if (text.empty() && held_.size() < kHeldSpacesMax) return 1;
    const MarkerAtStart found = marker_at_start(text, opens_);
    if (found.match == MarkerMatch::kPart && !text.empty()) return 1;
    if (found.match == MarkerMatch::kWhole) {
      for (const ReasoningMarkers& markers : dialect_.markers) {
        if (markers.open == found.marker) pair_ = &markers;
      }
      held_.clear();
      state_ = State::kOpening;
      return 1;
    }
    output.content += std::exchange(held_, {});
    state_ = State::kAnswer;
    return 1;
  }

  // Drops white space and one of the markers; then, or at other text, the state is `next`.
  size_t skip_marker(char c, std::span<const std::string_view> markers, State next,
                     ReasoningOutput& output) {
    if (held_.empty() && is_space(c)) return 1;
    held_ += c;
    const MarkerAtStart found = marker_at_start(held_, markers);
    if (found.match == MarkerMatch::kPart) return 1;
    const std::string text = std::exchange(held_, {});
    state_ = next;
    if (found.match == MarkerMatch::kNone) {
      push(text, output);
    } else if (next == State::kAnswer) {
      state_ = State::kWrapped;
    } else {
      state_ = State::kOpening;  // white space before the reasoning
    }
    return 1;
  }

  size_t read_inside(std::string_view text, ReasoningOutput& output) {
    const std::array<std::string_view, 2> ends = {pair_->close, call_marker_};
    const size_t num_before = held_.size();
    held_ += text;
    const auto found = find_marker(held_, ends);
    size_t end = found ? found->start : held_.size() - num_bytes_of_markers(held_, ends);
    end -= num_trailing_spaces(std::string_view(held_).substr(0, end));
    output.reasoning.append(held_, 0, end);
    if (!found) {
      held_.erase(0, end);
      return text.size();
    }
    held_.clear();
    state_ = State::kBehind;
    if (found->marker == call_marker_) {
      output.content += call_marker_;
      state_ = State::kAnswer;
    }
    return found->start + found->marker.size() - num_before;
  }

  size_t read_wrapped(std::string_view text, ReasoningOutput& output) {
    const size_t num_before = held_.size();
    held_ += text;
    const auto found = find_marker(held_, {&dialect_.answer_close, 1});
    const size_t end =
        found ? found->start : held_.size() - num_bytes_of_marker(held_, dialect_.answer_close);
    output.content.append(held_, 0, end);
    if (!found) {
      held_.erase(0, end);
      return text.size();
    }
    held_.clear();
    state_ = State::kAnswer;
    return found->start + found->marker.size() - num_before;
  }

  const ReasoningDialect& dialect_;
  const std::string_view call_marker_;  // empty: the request has no tools
  std::array<std::string_view, 3> opens_;
  const ReasoningMarkers* pair_ = nullptr;  // once reasoning has begun
  State state_ = State::kBefore;
  std::string held_;
};

}  // namespace

std::unique_ptr<ReasoningParser> make_reasoning_parser(const ReasoningStart& start) {
  if (start.dialect == nullptr) return nullptr;
  if (start.dialect->has_channels) return make_harmony_parser(start);
  return std::make_unique<MarkedReasoning>(start);
}

void ReasoningCounter::push(std::string_view text, bool has_token) {
  if (!parser_) return;
  ReasoningOutput unused;
  const ReasoningPhase before = parser_->phase();
  parser_->push(text, unused);
  if (has_token && is_reasoning_token(before, parser_->phase())) ++num_tokens_;
}

}  // namespace halley
