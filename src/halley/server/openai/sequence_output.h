// Collects a sequence's part of an answer that is not streamed, until the answer is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halley/engine/engine.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/logprob_list.h"
#include "halley/server/openai/reasoning.h"

namespace halley {

/// The sum of a sequence's events, in few bytes. Not thread-safe.
struct SequenceOutput {
  explicit SequenceOutput(const ApiRequest& request, const ReasoningStart& start = {});

  /// For all events but those that only an error can express. Takes a microsecond: the engine's
  /// thread may call it.
  void add(const TokenEvent& event);

  std::string text;
  LogprobList prompt_logprobs, logprobs;  // empty where they are not wanted
  std::vector<int32_t> token_ids;         // the same
  bool returns_token_ids;
  bool is_echo_only;  // the engine generates at least one token; this client does not see it
  int64_t num_tokens = 0, num_low_tokens = 0;  // low: TokenEvent::is_low
  ReasoningCounter reasoning;
  int64_t num_cached_tokens = 0;              // of the prompt; known at the end
  std::optional<FinishReason> finish_reason;  // absent: not at its end
  std::string stop_reason;
};

}  // namespace halley
