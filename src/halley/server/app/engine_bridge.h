// Converts requests of the API into requests of the engine, and what the engine answers and counts
// into errors and objects of the API. No other file does.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/engine/engine.h"
#include "halley/json/json.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/choice_writer.h"

namespace halley {

using ServerTime = std::chrono::steady_clock::time_point;

/// Inputs of one sequence that the API request does not have.
struct SequencePlan {
  std::vector<int32_t> prompt_ids;
  int64_t max_tokens = 1;
  int64_t choice_index = 0;  // among the prompt's n choices; each has its own seed
  std::optional<ServerTime> deadline;
  std::shared_ptr<const CompiledConstraint> constraint;  // null: any output
  std::shared_ptr<const Adapter> adapter = {};           // null: none
  bool has_reasoning_marks = false;  // somebody looks for the markers of reasoning in the text
};

GenerateRequest make_generate_request(const ApiRequest& request, ToolDialect dialect,
                                      SequencePlan plan);

/// The request for one text's embedding or logits.
GenerateRequest make_pooled_request(const ApiRequest& request, Pooling pooling,
                                    std::vector<int32_t> prompt_ids,
                                    std::optional<ServerTime> deadline);

/// The number of requests that wait in the engine and never ran.
int64_t num_queued(const Engine& engine);

/// Returns false if the waiting prompts have reached the limit on tokens, so no prompt fits.
bool has_room_for_tokens(const Engine& engine);
/// Whether the engine takes no more requests.
bool has_stopped(const Engine& engine);

/// Whether the model has several precisions.
bool has_precisions(const Engine& engine);
/// The engine's mode and SLO; where the model has several precisions, these, the one of the last
/// step and the last switches.
OrderedJson precision_state(const EngineConfig& config, const PrecisionStats& stats,
                            ServerTime now);

/// The error for the client if submit() did not queue a request.
ApiError submit_error(const SubmitResult& result);

/// The error for a request whose time has passed.
ApiError deadline_error();
/// The error for a request that ended without a finish_reason of the API. It names the request's
/// field where that is the reason.
ApiError end_error(const ApiRequest& request, const TokenEvent& event);
/// Whether the event ends a sequence in a way that only an error can express.
bool is_failure(const TokenEvent& event);

/// The prompt's tokens with their log probabilities, if the event has them.
std::vector<TokenDetail> prompt_details(const TokenEvent& event);

/// The number of prompt tokens from the prefix cache; known at the end of a request.
int64_t num_cached_prompt_tokens(const TokenEvent& event);

}  // namespace halley
