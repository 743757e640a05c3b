// A request that the engine has accepted, with the engine's own state of it.
#pragma once

#include <memory>
#include <optional>

#include "halley/engine/mask_job.h"
#include "halley/engine/prompt_scorer.h"
#include "halley/engine/request.h"
#include "halley/engine/request_times.h"
#include "halley/engine/scheduler.h"

namespace halley {

/// Created on the thread that calls submit(); afterwards only the engine's thread uses it.
struct LiveRequest {
  /// Two ids: the caller's, which a later request may reuse, and the sequence's, which is unique.
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
  const std::shared_ptr<MaskJob> constraint;  // null: none
  std::optional<int32_t> slot = {};           // the model's, while it chooses for this sequence
  PromptScorer scorer;
  RequestTimer timer;
  Request request;  // the last member: its initialiser moves from the arguments
};

}  // namespace halley
