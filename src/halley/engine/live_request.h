// A request that the engine has accepted, with what the engine alone needs to know of it.
#pragma once

#include <optional>

#include "halley/engine/prompt_scorer.h"
#include "halley/engine/request.h"
#include "halley/engine/request_times.h"
#include "halley/engine/scheduler.h"

namespace halley {

/// Made on the thread of the submit, then the engine's thread's alone.
struct LiveRequest {
  /// The arguments are those of Request; `now` is the time of the submit.
  LiveRequest(GenerateRequest generate, RequestId id, TokenCallback on_token,
              const RequestContext& context, TimePoint now);
  LiveRequest(const LiveRequest&) = delete;
  LiveRequest& operator=(const LiveRequest&) = delete;

  const std::optional<TimePoint> deadline;
  const NewSequence sequence;
  PromptScorer scorer;
  RequestTimer timer;
  Request request;  // the last member: it takes over what the others have read
};

}  // namespace halley
