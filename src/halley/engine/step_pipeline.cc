#include "halley/engine/step_pipeline.h"

#include <exception>
#include <utility>

#include "halley/base/check.h"

namespace halley {

StepPipeline::StepPipeline(CausalLm& model, const KvCache& cache, int64_t max_num_seqs)
    : forward_runner_(model.step_runner() == nullptr
                          ? std::make_unique<ForwardRunner>(model, max_num_seqs)
                          : nullptr),
      runner_(forward_runner_ == nullptr ? *model.step_runner() : *forward_runner_),
      is_synchronous_(forward_runner_ != nullptr && model.num_stages() == 1),
      samples_on_host_(runner_.samples_on_host()),
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

void StepPipeline::launch(const StepPlan& plan, std::span<LiveRequest* const> lives,
                          const Level& level) {
  HALLEY_CHECK(!is_full() && !plan.sequences.empty(), calls_.size());
  HALLEY_CHECK(lives.size() == plan.sequences.size(), lives.size());
  Call call;
  call.parts.reserve(lives.size());
  batch_.clear(level.precision);
  for (size_t i = 0; i < lives.size(); ++i) {
    const ScheduledSequence& scheduled = plan.sequences[i];
    LiveRequest& live = *lives[i];
    if (live.pooler) {
      call.parts.push_back(add_pooled(scheduled, live));
      continue;
    }
    if (scheduled.is_complete && !live.slot) take_slot(live);
    const PromptScorer::Rows rows = live.scorer.ask(scheduled.num_past, scheduled.num_rows);
    const bool is_deferred = live.sequence.is_choice_deferred;
    batch_.add(scheduled, {.tokens = live.request.tokens(),
                           .scored_rows = rows,
                           .slot = live.slot,
                           .is_choice_deferred = is_deferred,
                           .adapter = live.adapter.get()});
    if (scheduled.is_complete) live.note_logits(level.index);
    call.parts.push_back({.id = scheduled.id,
                          .num_scored_rows = rows.end - rows.begin,
                          .has_token = scheduled.is_complete && !is_deferred});
  }
  runner_.launch(batch_.step(), cache_.view());
  calls_.push_back(std::move(call));
  ++num_steps_;
  for (size_t i = 0; i < lives.size(); ++i) {
    const bool is_last = plan.sequences[i].is_last && !lives[i]->sequence.is_choice_deferred;
    if (is_last) give_back_slot(*lives[i]);
  }
}

StepPipeline::Part StepPipeline::add_pooled(const ScheduledSequence& scheduled, LiveRequest& live) {
  Pooler& pooler = *live.pooler;
  const Pooler::Rows rows = pooler.ask(scheduled.num_past, scheduled.num_rows);
  batch_.add(scheduled, {.tokens = live.request.tokens(),
                         .pooler = &pooler,
                         .pooled_rows = rows,
                         .adapter = live.adapter.get()});
  Part part = {.id = scheduled.id};
  const bool needs_hidden = pooler.pooling().needs_hidden_states();
  (needs_hidden ? part.num_pooled_hidden : part.num_pooled_logits) = rows.end - rows.begin;
  return part;
}

void StepPipeline::choose(std::span<const Choice> choices) {
  HALLEY_CHECK(!is_full_of_choices() && !choices.empty(), calls_.size());
  Call call = {.parts = {}, .is_choice = true};
  masked_.clear();
  for (const Choice& choice : choices) {
    LiveRequest& live = *choice.live;
    HALLEY_CHECK(live.slot.has_value(), live.sequence.id);
    masked_.push_back({.slot = *live.slot, .allowed = &live.constraint->allowed()});
    live.token_levels.push_back(live.logits_level);
    call.parts.push_back({.id = live.sequence.id, .num_scored_rows = 0, .has_token = true});
  }
  runner_.choose(masked_);
  calls_.push_back(std::move(call));
  ++num_choices_;
  for (const Choice& choice : choices) {
    if (choice.is_last) give_back_slot(*choice.live);
  }
}

const StepResult& StepPipeline::wait_for_runner() {
  try {
    return runner_.wait();
  } catch (...) {
    calls_.clear();  // nothing runs any more
    throw;
  }
}

StepPipeline::Call StepPipeline::take_oldest() {
  Call call = std::move(calls_.front());
  calls_.pop_front();
  --(call.is_choice ? num_choices_ : num_steps_);
  return call;
}

std::span<const SequenceResult> StepPipeline::wait() {
  HALLEY_CHECK(!is_empty());
  const StepResult& step = wait_for_runner();
  const Call call = take_oldest();
  int64_t next_row = 0, next_hidden_row = 0;
  const auto take_row = [](const ConstMatrix& rows, int64_t& next) {
    HALLEY_CHECK(next < rows.num_rows, next);
    return std::span(rows.row<float>(next++), static_cast<size_t>(rows.num_cols));
  };
  size_t next_chosen = 0;
  results_.clear();
  for (const Part& part : call.parts) {
    SequenceResult& result = results_.emplace_back();
    result.id = part.id;
    for (int64_t i = 0; i < part.num_scored_rows; ++i) {
      result.prompt_logits.push_back(take_row(step.logits, next_row));
    }
    for (int64_t i = 0; i < part.num_pooled_logits; ++i) {
      result.pooled_rows.push_back(take_row(step.logits, next_row));
    }
    for (int64_t i = 0; i < part.num_pooled_hidden; ++i) {
      result.pooled_rows.push_back(take_row(step.hidden, next_hidden_row));
    }
    if (part.has_token) result.chosen = &step.chosen.at(next_chosen++);
  }
  return results_;
}

void StepPipeline::abandon() noexcept {
  try {
    for (; !calls_.empty(); take_oldest()) static_cast<void>(wait_for_runner());
  } catch (const std::exception&) {  // the requests of these steps have ended already
  }
}

}  // namespace halley
