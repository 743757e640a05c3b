// Runs requests to their end and collects their outputs with timings, for command lines and tests.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "halley/engine/engine.h"

namespace halley {

struct GenerateResult {
  SubmitResult submit;  // if this is not kQueued, the rest is empty
  std::vector<int32_t> token_ids;
  std::string text;
  std::vector<TokenLogprob> logprobs;                   // one per token, if requested
  std::vector<std::vector<TokenLogprob>> top_logprobs;  // one list per token, if requested
  std::vector<PromptLogprob> prompt_logprobs;           // one per prompt token, if requested
  FinishReason finish_reason = FinishReason::kError;
  std::string stop_reason;
  std::string error;
  std::vector<double> token_seconds;  // from the submit to each token; the first is the time to
                                      // first token
  double total_seconds = 0;           // from the submit to the last event
  RequestTimes times;                 // as the engine measured it
};

/// Called on the engine's thread with the index of the request; see TokenCallback.
using GenerateCallback = std::function<void(size_t index, const TokenEvent&)>;

/// Submits all requests, in order and with the ids first_id, first_id + 1, ..., and waits until all
/// have ended. If the engine's queue is full it waits for one of its own to end, and gives
/// kQueueFull if it has none. Must not be called from the engine's thread.
std::vector<GenerateResult> generate_all(Engine& engine, std::vector<GenerateRequest> requests,
                                         const GenerateCallback& on_event = {},
                                         RequestId first_id = 1);

}  // namespace halley
