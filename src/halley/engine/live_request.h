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
  /// Its two ids: the caller's, which another request may have after it, and one that is its own
  /// for ever.
  struct Ids {
    RequestId request = 0;
    SequenceId sequence = 0;
  };
  /// The other arguments are those of Request; `now` is the time of the submit.
  LiveRequest(GenerateRequest generate, const Ids& ids, TokenCallback on_token,
              const RequestContext& context, TimePoint now);
  LiveRequest(const LiveRequest&) = delete;
  LiveRequest& operator=(const LiveRequest&) = delete;

  const RequestId id;
  const std::optional<TimePoint> deadline;
  const NewSequence sequence;
  std::optional<int32_t> slot = {};  // of the model's, while it chooses for this sequence
  PromptScorer scorer;
  RequestTimer timer;
  Request request;  // the last member: it takes over what the others have read
};

}  // namespace halley
