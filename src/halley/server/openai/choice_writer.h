// From the engine's events of one sequence to what the client gets of one choice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/engine/engine.h"
#include "halley/server/openai/answer.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/token_texts.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

/// A token with the log probability that it had, and those of the best.
struct TokenDetail {
  int32_t token_id = 0;
  std::optional<TokenLogprob> logprob;  // absent: a prompt's first token
  std::vector<TokenLogprob> top_logprobs;
};

/// Not thread-safe. What the constructor gets must outlive it.
class ChoiceWriter {
 public:
  ChoiceWriter(const ApiRequest& request, const TokenTexts& texts, ToolDialect dialect);
  ~ChoiceWriter();
  ChoiceWriter(ChoiceWriter&&) noexcept;
  ChoiceWriter& operator=(ChoiceWriter&&) = delete;

  /// The prompt of a request with echo. `details` is empty where log probabilities are not wanted.
  ChoiceDelta echo(const std::string& prompt, std::span<const TokenDetail> details);

  /// What `event` adds: content or pieces of calls that are certain, log probabilities, the end.
  /// Events with kCancelled or kError are the caller's to answer.
  ChoiceDelta push(const TokenEvent& event);

  int64_t num_tokens() const { return num_tokens_; }

 private:
  void add_text(const TokenEvent& event, ChoiceDelta& delta);
  void add_calls(std::vector<ToolCall> calls, ChoiceDelta& delta);
  OrderedJson logprobs_of(std::span<const TokenDetail> details);

  const ApiRequest& request_;
  const TokenTexts& texts_;
  ToolDialect dialect_;
  std::unique_ptr<ToolCallParser> parser_;  // null: all text is content
  int64_t num_tokens_ = 0;
  int64_t num_calls_ = 0;
  int64_t text_offset_ = 0;  // characters
  bool has_logprobs_;
  bool is_echo_only_;
};

/// Log probabilities of /v1/completions; `text_offset` of the first token is moved behind the last.
OrderedJson completion_logprobs(std::span<const TokenDetail> details, const TokenTexts& texts,
                                int64_t& text_offset);
/// Of /v1/chat/completions.
OrderedJson chat_logprobs(std::span<const TokenDetail> details, const TokenTexts& texts);

}  // namespace halley
