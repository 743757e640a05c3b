// Converts the engine's events of one sequence into the client's deltas of one choice.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halley/engine/engine.h"
#include "halley/server/openai/answer.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/logprob_list.h"
#include "halley/server/openai/reasoning.h"
#include "halley/server/openai/token_texts.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

/// Not thread-safe. The constructor's arguments must outlive it.
class ChoiceWriter {
 public:
  ChoiceWriter(const ApiRequest& request, const TokenTexts& texts, ToolDialect dialect,
               const ReasoningStart& reasoning = {});
  ~ChoiceWriter();
  ChoiceWriter(ChoiceWriter&&) noexcept;
  ChoiceWriter& operator=(ChoiceWriter&&) = delete;

  /// The prompt of a request with echo. `details` is empty if log probabilities are not wanted.
  ChoiceDelta echo(const std::string& prompt, std::span<const TokenDetail> details);

  /// The delta of `event`: final content or pieces of tool calls, log probabilities, the finish
  /// reason. The caller handles events with kCancelled or kError.
  ChoiceDelta push(const TokenEvent& event);

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_low_tokens() const { return num_low_tokens_; }              // TokenEvent::is_low
  int64_t num_reasoning_tokens() const { return num_reasoning_tokens_; }  // with their markers

 private:
  void add_text(const TokenEvent& event, ChoiceDelta& delta);
  std::string take_reasoning(const TokenEvent& event, ChoiceDelta& delta);
  void add_calls(std::vector<ToolCall> calls, ChoiceDelta& delta);
  OrderedJson logprobs_of(std::span<const TokenDetail> details);

  const ApiRequest& request_;
  const TokenTexts& texts_;
  ToolDialect dialect_;
  std::unique_ptr<ReasoningParser> reasoning_;  // null: there is none
  std::unique_ptr<ToolCallParser> parser_;      // of the rest; null: all of it is content
  int64_t num_tokens_ = 0, num_low_tokens_ = 0, num_reasoning_tokens_ = 0;
  int64_t num_calls_ = 0;
  int64_t text_offset_ = 0;  // characters
  bool has_logprobs_;
  bool is_echo_only_;
};

}  // namespace halley
