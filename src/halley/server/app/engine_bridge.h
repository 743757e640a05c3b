// The one place where requests of the API become requests of the engine, and the engine's answers
// become errors of the API.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/engine/engine.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/choice_writer.h"

namespace halley {

using ServerTime = std::chrono::steady_clock::time_point;

/// What one sequence of a request needs beside the request.
struct SequencePlan {
  std::vector<int32_t> prompt_ids;
  int64_t max_tokens = 1;
  int64_t choice_index = 0;  // among the n of its prompt: another seed for each
  std::optional<ServerTime> deadline;
  std::shared_ptr<const CompiledConstraint> constraint;  // null: any output
};

GenerateRequest make_generate_request(const ApiRequest& request, ToolDialect dialect,
                                      SequencePlan plan);

/// Requests that wait in the engine and never ran.
int64_t num_queued(const Engine& engine);

/// False: what waits has all tokens that may wait, so that no prompt will find a place.
bool has_room_for_tokens(const Engine& engine);
/// Whether the engine takes no more requests.
bool has_stopped(const Engine& engine);

/// Why submit() did not queue a request, for the client.
ApiError submit_error(const SubmitResult& result);

/// What a request that ended without a finish_reason of the API is answered with.
ApiError end_error(const TokenEvent& event);
/// Whether the event ends a sequence in a way that only an error can say.
bool is_failure(const TokenEvent& event);

/// The prompt's tokens with their log probabilities, where the event brings them.
std::vector<TokenDetail> prompt_details(const TokenEvent& event);

/// Of the prompt, those that were not computed; known at the end of a request.
int64_t num_cached_prompt_tokens(const TokenEvent& event);

}  // namespace halley
