// The running requests with a constraint: their masks in the making, and their tokens that wait for
// a mask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "halley/engine/live_request.h"
#include "halley/engine/mask_job.h"
#include "halley/engine/scheduler.h"

namespace halley {

/// A token goes through these: its logits are computed by a step and wait at the request's slot
/// (note_logits); the mask is done (choosable); the choice is launched, and its token comes back
/// (take_choice); the constraint has accepted it (settled). Accepting a token and making the next
/// mask is one job of the executor, which runs while the next step computes the next logits.
///
/// Requests wait here before they join the scheduler's queue, while many masks are in the making:
/// they would wait for their masks while they count towards max_num_seqs. Those that have long jobs
/// keep nobody out, until they are half of max_num_seqs.
///
/// Only the engine's thread uses this. Requests are named by their sequence, in whose order they
/// are returned.
class ConstrainedRequests {
 public:
  struct Limits {
    int64_t num_short_jobs = 8;  // in the making, when another request is let in
    int64_t num_jobs = 32;       // of any kind
    bool has_priority = false;   // requests with a lower number are let in first
  };
  ConstrainedRequests(MaskExecutor& executor, const Limits& limits)
      : executor_(executor), limits_(limits) {}

  /// A request that waits to be let in, behind those of its priority.
  void add(LiveRequest& live);
  /// Lets in as many as the limits allow, and begins their first masks.
  std::vector<LiveRequest*> let_in();
  /// The request has ended, let in or not.
  void end(const LiveRequest& live);

  /// A step that gives the logits of the next token was launched.
  void note_logits(const LiveRequest& live);
  /// The request was preempted: logits that wait are lost.
  void drop_logits(const LiveRequest& live);

  /// Those whose logits and masks are there, so that their tokens can be chosen.
  std::vector<LiveRequest*> choosable() const;
  /// The choice of the token is launched.
  void note_choice(const LiveRequest& live);
  /// The token was chosen; it must be accepted before it is delivered. Without `needs_mask` it is
  /// the last one.
  void take_choice(const LiveRequest& live, const ChosenToken& chosen, bool needs_mask);

  struct Settled {
    LiveRequest* live = nullptr;
    std::optional<ChosenToken> chosen = {};  // accepted, or why not; absent for the first mask
    OutputState state = OutputState::kOpen;
  };
  /// Those whose job is done, each once, where there is a token to deliver or no mask.
  std::vector<Settled> settled();

  /// Whether a mask is in the making that no step has been planned without: it may be done in time.
  bool has_fresh_job() const;
  /// A step is planned now.
  void note_plan();
  /// Whether a job is not done.
  bool has_job() const;

 private:
  struct Entry {
    LiveRequest* live = nullptr;
    std::shared_ptr<MaskJob> job;
    bool has_logits = false, has_mask = false;  // of the next token
    bool has_job = true;                        // since the last settled()
    bool is_fresh = true;                       // the job
    std::optional<ChosenToken> chosen = {};
  };

  using Rank = std::pair<int64_t, SequenceId>;

  void begin(Entry& entry, std::optional<int32_t> token_id, bool needs_mask);
  bool has_room() const;
  Rank rank_of(const LiveRequest& live) const;

  MaskExecutor& executor_;
  const Limits limits_;
  std::map<Rank, LiveRequest*> waiting_;  // to be let in
  std::map<SequenceId, Entry> entries_;
};

}  // namespace halley
