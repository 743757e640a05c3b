#include "halley/engine/step_pipeline.h"

#include <exception>
#include <utility>

#include "halley/base/check.h"

namespace halley {

StepPipeline::StepPipeline(CausalLm& model, const KvCache& cache, int64_t max_num_seqs)
    : forward_runner_(model.step_runner() == nullptr ? std::make_unique<ForwardRunner>(model)
                                                     : nullptr),
      runner_(forward_runner_ == nullptr ? *model.step_runner() : *forward_runner_),
      num_in_flight_max_(forward_runner_ == nullptr ? size_t{StepRunner::kNumInFlightMax} : 1),
      cache_(cache) {
  for (int64_t slot = max_num_seqs; slot > 0; --slot) {
    free_slots_.push_back(static_cast<int32_t>(slot - 1));
  }
}

void StepPipeline::take_slot(LiveRequest& live) {
  HALLEY_CHECK(!free_slots_.empty(), live.sequence.id);  // at most max_num_seqs run
  live.slot = free_slots_.back();
  free_slots_.pop_back();
  const Request& request = live.request;
  runner_.start_slot(*live.slot, request.token_choice(), request.prompt_ids(),
                     request.output_ids());
}

void StepPipeline::give_back_slot(LiveRequest& live) {
  if (live.slot) free_slots_.push_back(*live.slot);
  live.slot.reset();
}

void StepPipeline::launch(const StepPlan& plan, const LiveOf& live_of) {
  HALLEY_CHECK(!is_full() && !plan.sequences.empty(), steps_.size());
  std::vector<Part> parts;
  batch_.clear();
  for (const ScheduledSequence& scheduled : plan.sequences) {
    LiveRequest& live = live_of(scheduled.id);
    const bool is_chosen_by_model = live.request.is_chosen_by_model();
    if (scheduled.is_complete && is_chosen_by_model && !live.slot) take_slot(live);
    const PromptScorer::Rows rows = live.scorer.ask(scheduled.num_past, scheduled.num_rows);
    batch_.add(scheduled,
               {.tokens = live.request.tokens(), .scored_rows = rows, .slot = live.slot});
    parts.push_back({.id = scheduled.id,
                     .num_scored_rows = rows.end - rows.begin,
                     .is_complete = scheduled.is_complete,
                     .is_chosen_by_model = is_chosen_by_model});
  }
  runner_.launch(batch_.step(), cache_.view());
  steps_.push_back(std::move(parts));
  for (const ScheduledSequence& scheduled : plan.sequences) {
    if (scheduled.is_last) give_back_slot(live_of(scheduled.id));
  }
}

const StepResult& StepPipeline::wait_for_runner() {
  try {
    return runner_.wait();
  } catch (...) {
    steps_.clear();  // nothing runs any more
    throw;
  }
}

std::span<const SequenceResult> StepPipeline::wait() {
  HALLEY_CHECK(!is_empty());
  const StepResult& step = wait_for_runner();
  const std::vector<Part> parts = std::move(steps_.front());
  steps_.pop_front();
  int64_t next_row = 0;
  size_t next_chosen = 0;
  const auto next_logits = [&]() -> std::span<const float> {
    HALLEY_CHECK(next_row < step.logits.num_rows, next_row);
    return {step.logits.row<float>(next_row++), static_cast<size_t>(step.logits.num_cols)};
  };
  results_.clear();
  for (const Part& part : parts) {
    SequenceResult& result = results_.emplace_back();
    result.id = part.id;
    result.is_complete = part.is_complete;
    for (int64_t i = 0; i < part.num_scored_rows; ++i) {
      result.prompt_logits.push_back(next_logits());
    }
    if (!part.is_complete) continue;
    if (part.is_chosen_by_model) {
      result.chosen = &step.chosen.at(next_chosen++);
    } else {
      result.logits = next_logits();
    }
  }
  return results_;
}

void StepPipeline::abandon() noexcept {
  try {
    for (; !steps_.empty(); steps_.pop_front()) static_cast<void>(wait_for_runner());
  } catch (const std::exception&) {  // the requests of these steps have ended already
  }
}

}  // namespace halley
