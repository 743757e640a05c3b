// Steps on their way through the model: one is planned while the one before it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
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

/// What a step gave one of its sequences, which may have ended meanwhile. Valid until the next
/// wait().
struct SequenceResult {
  SequenceId id = 0;
  bool is_complete = false;                           // it has a next token:
  const ChosenToken* chosen = nullptr;                // where the model chose it, else null
  std::span<const float> logits;                      // [V], where the host is to choose it
  std::vector<std::span<const float>> prompt_logits;  // [V] of each row that scores the prompt
};

/// Gives plans to the model in order, with the inputs of their sequences, and hands out what comes
/// back. Keeps the slots of the sequences for which the model chooses. Not thread-safe.
///
/// A sequence has a slot from the first step in which it is complete until its last step, or until
/// it is preempted or ends. What steps in flight give it then still comes back under its id, and
/// the slot is free for another.
class StepPipeline {
 public:
  /// The model is prepared, and outlives this object as the cache does. A model without a runner
  /// has one step in flight, which is over when launch() returns.
  StepPipeline(CausalLm& model, const KvCache& cache, int64_t max_num_seqs);

  /// A step has to be waited for before the next one is launched.
  bool is_full() const { return steps_.size() == num_in_flight_max_; }
  bool is_empty() const { return steps_.empty(); }

  using LiveOf = std::function<LiveRequest&(SequenceId id)>;
  /// Launches a step that has sequences. Throws what CausalLm::forward() throws.
  void launch(const StepPlan& plan, const LiveOf& live_of);
  /// The results of the oldest step that has not been waited for, in the order of its plan.
  std::span<const SequenceResult> wait();
  /// The sequence was preempted or has ended.
  void give_back_slot(LiveRequest& live);

  /// Waits for all steps in flight, whatever becomes of them, so that nothing uses the cache.
  void abandon() noexcept;

 private:
  // Where a sequence's results stand in those of its step.
  struct Part {
    SequenceId id = 0;
    int64_t num_scored_rows = 0;
    bool is_complete = false;
    bool is_chosen_by_model = false;
  };

  void take_slot(LiveRequest& live);
  const StepResult& wait_for_runner();

  std::unique_ptr<ForwardRunner> forward_runner_;  // of a model that has none
  StepRunner& runner_;
  const size_t num_in_flight_max_;
  const KvCache& cache_;
  std::vector<int32_t> free_slots_;  // a stack
  StepBatch batch_;
  std::deque<std::vector<Part>> steps_;  // in flight, the oldest first
  std::vector<SequenceResult> results_;
};

}  // namespace halley
