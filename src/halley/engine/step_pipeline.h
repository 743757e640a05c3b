// Steps in flight: the next one is planned while the one before it runs.
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

/// The result of a step for one of its sequences, which may have ended meanwhile. Valid until the
/// next wait().
struct SequenceResult {
  SequenceId id = 0;
  bool is_complete = false;             // it has a next token, in `chosen` or `logits`
  const ChosenToken* chosen = nullptr;  // the model's sample, else null
  std::span<const float> logits;        // [V], if the host samples
  std::vector<std::span<const float>> prompt_logits;  // [V] for each row that scores the prompt
};

/// Launches plans on the model in order, with the inputs of their sequences, and returns the
/// results. Assigns slots to the sequences for which the model samples. Not thread-safe.
///
/// A sequence has a slot from the first step in which it is complete until its last step, or until
/// it is preempted or ends. Results of steps in flight still come back under its id
/// then, and another sequence may take the slot.
class StepPipeline {
 public:
  /// The model is prepared; it and the cache must outlive this object. For a model without a runner
  /// the step in flight has ended when launch() returns.
  StepPipeline(CausalLm& model, const KvCache& cache, int64_t max_num_seqs);

  /// Whether wait() must be called before the next launch().
  bool is_full() const { return steps_.size() == num_in_flight_max_; }
  bool is_empty() const { return steps_.empty(); }

  using LiveOf = std::function<LiveRequest&(SequenceId id)>;
  /// Launches a step that has sequences. Throws what CausalLm::forward() throws.
  void launch(const StepPlan& plan, const LiveOf& live_of);
  /// Waits for the oldest step in flight and returns its results, in the order of its plan.
  std::span<const SequenceResult> wait();
  /// Frees the slot of a sequence that was preempted or has ended.
  void give_back_slot(LiveRequest& live);

  /// Waits for all steps in flight, even failing ones, so that nothing uses the cache any more.
  void abandon() noexcept;

 private:
  // The indices of a sequence's results in those of its step.
  struct Part {
    SequenceId id = 0;
    int64_t num_scored_rows = 0;
    bool is_complete = false;
    bool is_chosen_by_model = false;
  };

  void take_slot(LiveRequest& live);
  const StepResult& wait_for_runner();

  std::unique_ptr<ForwardRunner> forward_runner_;  // for a model without its own
  StepRunner& runner_;
  const size_t num_in_flight_max_;
  const KvCache& cache_;
  std::vector<int32_t> free_slots_;  // a stack
  StepBatch batch_;
  std::deque<std::vector<Part>> steps_;  // in flight, the oldest first
  std::vector<SequenceResult> results_;
};

}  // namespace halley
