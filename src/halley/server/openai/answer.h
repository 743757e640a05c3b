// Answers of /v1/completions and /v1/chat/completions: their parts, and the chunks of streams.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

struct AnswerHead {
  bool is_chat = false;
  std::string id = {};  // "cmpl-...", "chatcmpl-..."
  int64_t created_s = 0;
  std::string model = {};
};

struct ApiUsage {
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;  // of these, from the prefix cache
  int64_t num_completion_tokens = 0;
  int64_t num_reasoning_tokens = 0;  // of these; told where has_reasoning
  bool has_reasoning = false;        // the model's reasoning is looked for
  int64_t num_low_tokens = 0;        // of these, in another precision than the best
  bool has_precisions = false;       // the model has several: only then they are told
};
OrderedJson usage_json(const ApiUsage& usage);

/// A tool call of a choice, or a piece of it.
struct IndexedToolCall {
  int64_t index = 0;
  ToolCall call;
};

/// The addition of an event to one choice.
struct ChoiceDelta {
  std::string text;
  std::string reasoning;
  std::vector<IndexedToolCall> calls;
  OrderedJson logprobs = nullptr;         // in the endpoint's format; null: none
  std::vector<int32_t> token_ids;         // where the request returns them
  std::vector<int32_t> prompt_token_ids;  // the same, with a choice's first delta
  std::string finish_reason;              // "stop", "length", "tool_calls"; empty: unfinished
  std::string stop_reason;                // vLLM's: the stop string or token; empty: null

  bool is_empty() const {
    return text.empty() && reasoning.empty() && calls.empty() && logprobs.is_null() &&
           token_ids.empty() && finish_reason.empty();
  }
  /// Joins the pieces of each call.
  void join_calls();
};

/// The members of an answer, or of a chunk of it, before "choices".
OrderedJson answer_head(const AnswerHead& head, bool is_chunk);

/// One chunk of a stream with one choice.
OrderedJson answer_chunk(const AnswerHead& head, int64_t choice_index, const ChoiceDelta& delta);
/// The first chunk of a chat's choice, with its role.
OrderedJson role_chunk(const AnswerHead& head, int64_t choice_index);
/// The last chunk, with the usage and no choice.
OrderedJson usage_chunk(const AnswerHead& head, const ApiUsage& usage);

/// The members of a message, or of a delta, that have its reasoning: the name of DeepSeek, SGLang
/// and llama.cpp, and that of vLLM and OpenRouter. Many clients read one of them alone.
inline constexpr std::array<const char*, 2> kReasoningMembers = {"reasoning_content", "reasoning"};

/// Writes the text chunks of a stream, nearly all of its chunks, directly: the same bytes as
/// sse_event(answer_chunk(...)), without a JSON value for each token.
class ChunkWriter {
 public:
  /// `has_null_usage`: the chunks have "usage": null, as in a stream with a usage at its end.
  ChunkWriter(const AnswerHead& head, bool has_null_usage);

  /// Appends the event. Returns false and appends nothing if the delta has more than text, or more
  /// than reasoning.
  [[nodiscard]] bool append(int64_t choice_index, const ChoiceDelta& delta, std::string& out) const;

 private:
  /// An event around a choice's index and around the text, which stands there once or twice.
  struct Frame {
    std::string before_index, before_text;
    std::vector<std::string> behind_texts;
  };
  static Frame frame_of(const AnswerHead& head, bool has_null_usage, const ChoiceDelta& delta);

  Frame text_, reasoning_;
};

/// A server-sent event with this object, in one line of valid UTF-8.
std::string sse_event(const OrderedJson& json);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";

/// JSON text of an answer; invalid UTF-8 becomes U+FFFD.
std::string json_text(const OrderedJson& json);

}  // namespace halley
