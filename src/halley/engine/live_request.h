// A request that the engine has accepted, with the engine's own state of it.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>

#include "halley/engine/mask_job.h"
#include "halley/engine/pooler.h"
#include "halley/engine/prompt_scorer.h"
#include "halley/engine/request.h"
#include "halley/engine/request_times.h"
#include "halley/engine/scheduler.h"
#include "halley/engine/step_precision.h"

namespace halley {

/// Created on the thread that calls submit(); afterwards only the engine's thread uses it.
struct LiveRequest {
  /// Two ids: the caller's, which a later request may reuse, and the sequence's, which is unique.
  struct Ids {
    RequestId request = 0;
    SequenceId sequence = 0;
  };
  /// The other arguments are those of Request.
  LiveRequest(GenerateRequest generate, const Ids& ids, TokenCallback on_token,
              const RequestContext& context, const PrecisionDemand& asked);
  LiveRequest(const LiveRequest&) = delete;
  LiveRequest& operator=(const LiveRequest&) = delete;

  const RequestId id;
  const std::optional<TimePoint> deadline;
  const NewSequence sequence;
  const std::shared_ptr<MaskJob> constraint;     // null: none
  const std::shared_ptr<const Adapter> adapter;  // null: none
  std::optional<int32_t> slot = {};              // the model's, while it chooses for this sequence
  PrecisionDemand demand;
  /// Precision levels of the logits that wait for a choice, and of the tokens in flight.
  size_t logits_level = 0;
  std::deque<size_t> token_levels = {};
  PromptScorer scorer;
  std::optional<Pooler> pooler;  // of a request that generates nothing
  RequestTimer timer;
  Request request;  // the last member: its initialiser moves from the arguments

  /// A step at this level that gives the logits of the next token was launched.
  void note_logits(size_t level) {
    logits_level = level;
    if (!sequence.is_choice_deferred) token_levels.push_back(level);
  }
};

}  // namespace halley
