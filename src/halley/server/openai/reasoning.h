// Reasoning in a model's text, apart from its answer, found while the text arrives.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "halley/server/openai/api_request.h"

namespace halley {

struct ReasoningMarkers {
  std::string_view open, close;
  /// The text with which the model's training ends reasoning; it has the closing marker. A thinking
  /// budget that is used up forces its tokens.
  std::string_view ending;
};

/// A model family's format of reasoning.
struct ReasoningDialect {
  std::string_view name;  // vLLM's
  /// One pair is in use at a time: the one that the text or the prompt opens.
  std::array<ReasoningMarkers, 3> markers;
  /// The model may leave the opening marker out.
  bool begins_inside = false;
  /// A tool call's marker, which ends reasoning that the model does not close.
  std::string_view call_marker = {};
  /// Markers around the answer, which are dropped.
  std::string_view answer_open = {}, answer_close = {};
  /// OpenAI's harmony: messages in channels, instead of `markers`.
  bool has_channels = false;
};

/// One row for each dialect.
std::span<const ReasoningDialect> reasoning_dialects();
/// Null if there is none of that name.
const ReasoningDialect* find_reasoning_dialect(std::string_view name);
/// Detects the dialect from a chat template; null if it does not mention reasoning.
const ReasoningDialect* detect_reasoning_dialect(std::string_view chat_template);

/// The reasoning and the rest of a piece of text.
struct ReasoningOutput {
  std::string reasoning, content;
};

enum class ReasoningPhase : uint8_t {
  kBefore,     // an opening marker may come; other text is the answer
  kReasoning,  // the next text is reasoning, or ends it
  kBetween,    // harmony: reasoning has ended, and the next message may be of any kind
  kAnswer,
};

/// White space around reasoning is dropped, and the markers are. Of harmony, messages to a
/// recipient (tool calls) stay in the content as "<|channel|>commentary
/// to=...<|message|>...<|call|>". The result does not depend on the pieces. One parser per
/// sequence; not thread-safe.
class ReasoningParser {
 public:
  virtual ~ReasoningParser() = default;
  virtual void push(std::string_view text, ReasoningOutput& output) = 0;
  /// To be called at the end of the text.
  virtual void finish(ReasoningOutput& output) = 0;
  virtual ReasoningPhase phase() const = 0;
  /// The text that ends reasoning now and leads to the answer; empty where there is none to end, or
  /// it cannot end here (in the header of a message).
  virtual std::string_view ending() const = 0;
};

/// How the output of a request begins.
struct ReasoningStart {
  const ReasoningDialect* dialect = nullptr;  // null: all text is content
  std::string prompt_end = {};                // the part of the prompt that the parser reads first
  bool is_inside = false;                     // the prompt has opened reasoning
  size_t pair_index = 0;                      // of the markers that have, for is_inside
  bool looks_for_calls = false;
};

/// `prompt` is the rendered conversation. For a request that is no chat, and for a prompt that has
/// closed the reasoning, all text is content.
ReasoningStart reasoning_start(const ReasoningDialect* dialect, const ApiRequest& request,
                               std::string_view prompt);

/// Null where start.dialect is.
std::unique_ptr<ReasoningParser> make_reasoning_parser(const ReasoningStart& start);

/// Counts the output tokens of reasoning, with their markers. Not thread-safe.
class ReasoningCounter {
 public:
  explicit ReasoningCounter(const ReasoningStart& start) : parser_(make_reasoning_parser(start)) {}

  /// Text that became final with a token, or without one.
  void push(std::string_view text, bool has_token);
  int64_t num_tokens() const { return num_tokens_; }

 private:
  std::unique_ptr<ReasoningParser> parser_;  // null: there is no more to count
  int64_t num_tokens_ = 0;
};

/// Whether a token that moved a parser from one phase to another belongs to reasoning.
inline bool is_reasoning_token(ReasoningPhase before, ReasoningPhase after) {
  const auto is_inside = [](ReasoningPhase phase) {
    return phase == ReasoningPhase::kReasoning || phase == ReasoningPhase::kBetween;
  };
  return is_inside(before) || is_inside(after);
}

}  // namespace halley
