#include "halley/engine/step_planner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "halley/base/check.h"

namespace halley {

StepPlanner::StepPlanner(Scheduler& scheduler, StepPlannerConfig config,
                         StepPrecision::DemandOf demand_of)
    : scheduler_(scheduler),
      precision_(std::move(config.levels), config.mode),
      demand_of_(std::move(demand_of)),
      limits_(std::max<size_t>(1, precision_.stats().levels.size()),
              PrefillLimit(config.itl_target)) {}

PlannedStep StepPlanner::plan(TimePoint now) {
  PlannedStep step;
  if (precision_.has_choice()) {
    const StepOutline outline = scheduler_.outline();
    const PrefillOutlook outlook = {
        .num_decodes = static_cast<int64_t>(outline.decodes.size()),
        .num_past = outline.prefills.empty() ? 0 : outline.prefills.front().num_past};
    const int64_t num_rows_max =
        scheduler_.num_batched_tokens_max() - static_cast<int64_t>(outline.decodes.size());
    step.decision = precision_.choose(
        outline,
        [&](size_t level) { return std::min(num_rows_max, limits_[level].expected_rows(outlook)); },
        demand_of_, now);
  }
  PrefillLimit& limit = limits_[step.decision.level];
  step.plan = scheduler_.schedule(
      [&](const PrefillOutlook& outlook) { return limit.num_rows(outlook); }, step.decision.scope);
  if (step.plan.sequences.empty()) precision_.note_plan(step.plan, step.decision, now);
  return step;
}

void StepPlanner::learn(size_t level, std::span<const SequenceStep> sequences, double seconds) {
  precision_.learn(level, sequences, seconds);
  StepWork work;
  for (const SequenceStep& sequence : sequences) {
    if (sequence.num_new == 1) {
      ++work.num_decodes;
    } else {
      work.num_prefill_rows += sequence.num_new;
      work.num_prefill_positions += sequence.num_new * (sequence.num_new + 1) / 2;
    }
  }
  limits_[level].note_step(work, seconds);
  if (work.num_decodes > 0) return;
  // With one decode more so many rows would hardly take longer.
  work.num_decodes = 1;
  limits_[level].note_step(work, seconds);
}

void StepPlanner::note_launch(const PlannedStep& step, TimePoint now) {
  precision_.note_plan(step.plan, step.decision, now);
  launches_.push_back({.level = step.decision.level, .work = work_of(step.plan), .begin = now});
}

void StepPlanner::note_end(TimePoint now) {
  HALLEY_CHECK(!launches_.empty());
  const Launch launch = launches_.front();
  launches_.pop_front();
  // A step that was launched while the one before it ran began at that one's end.
  const double seconds =
      std::chrono::duration<double>(now - std::max(launch.begin, last_end_)).count();
  last_end_ = now;
  limits_[launch.level].note_step(launch.work, seconds);
  precision_.note_end(now, seconds);
}

}  // namespace halley
