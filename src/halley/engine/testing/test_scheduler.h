// For tests: a scheduler whose sequences have tokens.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "halley/engine/scheduler.h"

namespace halley {

inline std::vector<SequenceId> ids_of(const StepPlan& plan) {
  std::vector<SequenceId> ids;
  for (const ScheduledSequence& scheduled : plan.sequences) ids.push_back(scheduled.id);
  return ids;
}

inline std::vector<int64_t> rows_of(const StepPlan& plan) {
  std::vector<int64_t> rows;
  for (const ScheduledSequence& scheduled : plan.sequences) rows.push_back(scheduled.num_rows);
  return rows;
}

/// A scheduler whose sequences have tokens.
class TestScheduler {
 public:
  explicit TestScheduler(const SchedulerConfig& config)
      : scheduler_(config,
                   [this](SequenceId id) -> std::span<const int32_t> { return tokens_.at(id); }) {}

  void add(NewSequence added, std::vector<int32_t> prompt_ids) {
    added.num_prompt_tokens = static_cast<int64_t>(prompt_ids.size());
    tokens_[added.id] = std::move(prompt_ids);
    scheduler_.add(added);
  }
  /// Tokens that no other has.
  void add(SequenceId id, int64_t num_prompt_tokens, int64_t max_tokens, int64_t priority = 0) {
    std::vector<int32_t> prompt_ids;
    for (int64_t i = 0; i < num_prompt_tokens; ++i) prompt_ids.push_back(next_token_++);
    add({.id = id, .max_tokens = max_tokens, .priority = priority}, std::move(prompt_ids));
  }
  /// The plan's page tables are not valid any more.
  StepPlan run_step(const PrefillLimitOf& limit_of = {}) {
    StepPlan plan = launch_step(limit_of);
    for (const ScheduledSequence& scheduled : plan.sequences) {
      if (scheduled.is_complete) know_token(scheduled.id);
    }
    return plan;
  }
  /// Leaves its tokens unknown.
  StepPlan launch_step(const PrefillLimitOf& limit_of = {}) {
    StepPlan plan = scheduler_.schedule(limit_of);
    scheduler_.launched(plan);
    return plan;
  }
  void know_token(SequenceId id) {
    tokens_.at(id).push_back(next_token_++);
    scheduler_.note_token(id);
  }
  Scheduler* operator->() { return &scheduler_; }

 private:
  std::map<SequenceId, std::vector<int32_t>> tokens_;
  int32_t next_token_ = 1000;
  Scheduler scheduler_;
};

inline SchedulerConfig small_scheduler_config() {
  return {.num_pages = 100,
          .page_tokens = 4,
          .max_model_len = 64,
          .max_num_seqs = 4,
          .max_num_batched_tokens = 8};
}

}  // namespace halley
