// Steps in flight: the next one is planned while the one before it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "halley/engine/forward_runner.h"
#include "halley/engine/kv_cache.h"
#include "halley/engine/live_request.h"
#include "halley/engine/scheduler.h"
#include "halley/engine/step_batch.h"
#include "halley/models/base/step_runner.h"

namespace halley {

/// The result of a step, or of a choice from logits that waited, for one sequence, which may have
/// ended meanwhile. Valid until the next wait().
struct SequenceResult {
  SequenceId id = 0;
  const ChosenToken* chosen = nullptr;                // its next token; null: none was chosen
  std::vector<std::span<const float>> prompt_logits;  // [V] for each row that scores the prompt
  std::vector<std::span<const float>> pooled_rows;    // the rows that its pooler has asked for
};

/// Launches plans on the model in order, with the inputs of their sequences, and returns the
/// results. Assigns slots to the sequences. Not thread-safe.
///
/// A sequence has a slot from the first step in which it is complete until its last choice is
/// launched, or until it is preempted or ends. Results in flight still come back under its id then,
/// and another sequence may take the slot.
class StepPipeline {
 public:
  /// The model is prepared; it and the cache must outlive this object. For a model without a runner
  /// what is launched has ended when the call returns.
  StepPipeline(CausalLm& model, const KvCache& cache, int64_t max_num_seqs);

  /// Whether wait() must be called before the next launch(), or before the next choose().
  bool is_full() const {
    return is_synchronous_ ? !is_empty() : num_steps_ == runner_.num_in_flight_max();
  }
  bool is_full_of_choices() const {
    return is_synchronous_ ? !is_empty() : num_choices_ == runner_.num_in_flight_max();
  }
  bool is_empty() const { return calls_.empty(); }
  bool is_synchronous() const { return is_synchronous_; }
  /// Never changes, so that any thread may ask.
  bool samples_on_host() const { return samples_on_host_; }
  StepRunner& runner() { return runner_; }
  /// Whether what wait() waits for is a choose(). It is not empty, here and below.
  bool is_choice_next() const { return calls_.front().is_choice; }
  /// Whether wait() would return at once.
  bool is_ready() const { return runner_.is_ready(); }

  /// One of the model's precisions.
  struct Level {
    size_t index = 0;
    std::optional<Precision> precision = {};  // absent: the model has one, or ExecContext's counts
  };
  /// Launches a step that has sequences; `lives` are theirs, and their tokens are of this level.
  /// Throws what CausalLm::forward() throws.
  void launch(const StepPlan& plan, std::span<LiveRequest* const> lives, const Level& level);

  struct Choice {
    LiveRequest* live = nullptr;  // its last row was launched, and its choice deferred
    bool is_last = false;         // it is in no later step
  };
  /// Launches choices, each by the mask of its request's constraint.
  void choose(std::span<const Choice> choices);

  /// Waits for the oldest launch() or choose() and returns its results, in the order of its plan.
  std::span<const SequenceResult> wait();
  /// Frees the slot of a sequence that was preempted or has ended.
  void give_back_slot(LiveRequest& live);

  /// Waits for all that is in flight, even failing steps, so that nothing uses the cache any more.
  void abandon() noexcept;

 private:
  // The indices of a sequence's results in those of its step.
  struct Part {
    SequenceId id = 0;
    int64_t num_scored_rows = 0;
    bool has_token = false;
    int64_t num_pooled_logits = 0, num_pooled_hidden = 0;  // rows
  };
  struct Call {
    std::vector<Part> parts;
    bool is_choice = false;
  };

  void take_slot(LiveRequest& live);
  Part add_pooled(const ScheduledSequence& scheduled, LiveRequest& live);
  const StepResult& wait_for_runner();
  Call take_oldest();

  std::unique_ptr<ForwardRunner> forward_runner_;  // for a model without its own
  StepRunner& runner_;
  const bool is_synchronous_;
  const bool samples_on_host_;
  const KvCache& cache_;
  std::vector<int32_t> free_slots_;  // a stack
  StepBatch batch_;
  std::vector<MaskedChoice> masked_;
  std::deque<Call> calls_;               // in flight, the oldest first
  int num_steps_ = 0, num_choices_ = 0;  // of calls_
  std::vector<SequenceResult> results_;
};

}  // namespace halley
