#include "halley/engine/scheduler.h"

#include <algorithm>
#include <iterator>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"

namespace halley {

Scheduler::Scheduler(const SchedulerConfig& config) : config_(config), pages_(config.num_pages) {
  HALLEY_CHECK(config.page_tokens >= 1 && config.max_num_seqs >= 1, config.page_tokens,
               config.max_num_seqs);
  // Otherwise a decode, or the last prefill, could wait for ever.
  HALLEY_CHECK(config.max_num_batched_tokens >= config.max_num_seqs, config.max_num_batched_tokens,
               config.max_num_seqs);
}

int64_t Scheduler::num_tokens_max(const SchedulerConfig& config, int64_t num_prompt_tokens,
                                  int64_t max_tokens) {
  const auto sum = checked_add(num_prompt_tokens, max_tokens);
  return sum ? std::min(*sum, config.max_model_len) : config.max_model_len;
}

bool Scheduler::can_fit(const SchedulerConfig& config, int64_t num_prompt_tokens,
                        int64_t max_tokens) {
  if (num_prompt_tokens >= config.max_model_len) return false;
  // The last token is returned and never computed: it needs no place in the cache.
  const int64_t num_cached = num_tokens_max(config, num_prompt_tokens, max_tokens) - 1;
  return ceil_div(num_cached, config.page_tokens) <= config.num_pages;
}

Admission Scheduler::add(RequestId id, int64_t num_prompt_tokens, int64_t max_tokens) {
  HALLEY_CHECK(num_prompt_tokens >= 1 && max_tokens >= 1, num_prompt_tokens, max_tokens);
  if (!can_fit(config_, num_prompt_tokens, max_tokens)) return Admission::kTooLong;
  if (num_never_run_ >= config_.max_num_queued) return Admission::kQueueFull;
  const auto [place, is_added] = sequences_.try_emplace(id);
  HALLEY_CHECK(is_added, id);
  Sequence& sequence = place->second;
  sequence.id = id;
  sequence.arrival = next_arrival_++;
  sequence.num_tokens = num_prompt_tokens;
  sequence.num_tokens_max = num_tokens_max(config_, num_prompt_tokens, max_tokens);
  waiting_.emplace(sequence.arrival, &sequence);
  ++num_never_run_;
  return Admission::kQueued;
}

StepPlan Scheduler::schedule() {
  StepPlan plan;
  plan_decodes(plan);
  plan_prefills(plan);
  // Pages that a preemption has just freed belong to those that still run.
  if (plan.preempted.empty()) admit(plan);
  return plan;
}

void Scheduler::plan_rows(Sequence& sequence, int64_t num_rows, StepPlan& plan) {
  HALLEY_CHECK(sequence.num_tokens < sequence.num_tokens_max, sequence.id, sequence.num_tokens);
  plan.sequences.push_back({.id = sequence.id,
                            .num_past = sequence.num_computed,
                            .num_rows = num_rows,
                            .is_complete = num_rows == sequence.num_left(),
                            .page_table = sequence.page_table});
  plan.num_rows += num_rows;
}

void Scheduler::plan_decodes(StepPlan& plan) {
  // Preemption takes from the young end of the map, which this loop walks from the old end: what is
  // planned already keeps its pages, and the loop ends at the latest at the sequence that is lost.
  for (auto place = running_.begin(); place != running_.end();) {
    Sequence& sequence = *place->second;
    if (sequence.num_left() > 1) {
      ++place;
      continue;
    }
    const int64_t num_pages = ceil_div(sequence.num_tokens, config_.page_tokens);
    const int64_t num_missing = num_pages - static_cast<int64_t>(sequence.page_table.size());
    if (num_missing > 0 && !pages_.try_take(num_missing, sequence.page_table)) {
      const bool is_youngest = std::next(place) == running_.end();
      preempt_youngest(plan);
      if (is_youngest) return;
      continue;  // the same sequence again, with more free pages
    }
    plan_rows(sequence, 1, plan);
    ++place;
  }
}

void Scheduler::preempt_youngest(StepPlan& plan) {
  const auto youngest = std::prev(running_.end());
  // Alone it has all pages, and add() saw that these suffice.
  HALLEY_CHECK(running_.size() > 1, youngest->second->id);
  pages_.give_back(youngest->second->page_table);
  youngest->second->num_computed = 0;
  plan.preempted.push_back(youngest->second->id);
  waiting_.insert(running_.extract(youngest));
}

void Scheduler::plan_prefills(StepPlan& plan) {
  // Their pages were taken at admission. One token left is a decode, and planned already.
  for (const auto& [arrival, sequence] : running_) {
    const int64_t num_rows = config_.max_num_batched_tokens - plan.num_rows;
    if (num_rows == 0) return;
    if (sequence->num_left() > 1) {
      plan_rows(*sequence, std::min(sequence->num_left(), num_rows), plan);
    }
  }
}

void Scheduler::admit(StepPlan& plan) {
  // Whatever waits is younger than whatever runs, a preempted sequence too, so that the head of the
  // queue is the next in the order of arrival.
  while (!waiting_.empty() && num_running() < config_.max_num_seqs &&
         plan.num_rows < config_.max_num_batched_tokens) {
    Sequence& sequence = *waiting_.begin()->second;
    const int64_t num_pages = ceil_div(sequence.num_tokens, config_.page_tokens);
    // Without spare pages it would soon be the youngest that is preempted, and its prefill lost.
    const int64_t num_spare = num_running();
    if (num_pages + num_spare > pages_.num_free()) return;
    HALLEY_CHECK(pages_.try_take(num_pages, sequence.page_table), num_pages);
    running_.insert(waiting_.extract(waiting_.begin()));
    if (!sequence.has_run) {
      sequence.has_run = true;
      --num_never_run_;
    }
    const int64_t num_rows = config_.max_num_batched_tokens - plan.num_rows;
    plan_rows(sequence, std::min(sequence.num_left(), num_rows), plan);
  }
}

void Scheduler::update(const StepPlan& plan) {
  for (const ScheduledSequence& scheduled : plan.sequences) {
    const auto place = sequences_.find(scheduled.id);
    if (place == sequences_.end()) continue;  // removed meanwhile
    Sequence& sequence = place->second;
    HALLEY_CHECK(sequence.num_computed == scheduled.num_past, sequence.id, sequence.num_computed);
    sequence.num_computed += scheduled.num_rows;
    if (scheduled.is_complete) ++sequence.num_tokens;
  }
}

bool Scheduler::remove(RequestId id) {
  const auto place = sequences_.find(id);
  if (place == sequences_.end()) return false;
  Sequence& sequence = place->second;
  pages_.give_back(sequence.page_table);
  if (!sequence.has_run) --num_never_run_;
  waiting_.erase(sequence.arrival);
  running_.erase(sequence.arrival);
  sequences_.erase(place);
  return true;
}

}  // namespace halley
