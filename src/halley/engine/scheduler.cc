#include "halley/engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"

namespace halley {
namespace {

constexpr int64_t kNeverEnough = -1;

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, TokensOf tokens_of)
    : config_(config), tokens_of_(std::move(tokens_of)), pages_(config.num_pages) {
  HALLEY_CHECK(config.page_tokens >= 1 && config.max_num_seqs >= 1, config.page_tokens,
               config.max_num_seqs);
  // Otherwise a decode, or the last prefill, could wait for ever.
  HALLEY_CHECK(config.max_num_batched_tokens >= config.max_num_seqs, config.max_num_batched_tokens,
               config.max_num_seqs);
  HALLEY_CHECK(config.max_num_prompt_logits >= 1, config.max_num_prompt_logits);
  HALLEY_CHECK(tokens_of_ != nullptr || !config.has_prefix_caching);
}

int64_t Scheduler::num_tokens_max(const SchedulerConfig& config, int64_t num_prompt_tokens,
                                  int64_t max_tokens) {
  const auto sum = checked_add(num_prompt_tokens, max_tokens);
  return sum ? std::min(*sum, config.max_model_len) : config.max_model_len;
}

bool Scheduler::can_fit(const SchedulerConfig& config, int64_t num_prompt_tokens,
                        int64_t max_tokens) {
  if (num_prompt_tokens >= config.max_model_len) return false;
  // The last token is returned and never computed: it needs no position in the cache.
  const int64_t num_cached = num_tokens_max(config, num_prompt_tokens, max_tokens) - 1;
  return ceil_div(num_cached, config.page_tokens) <= config.num_pages;
}

void Scheduler::add(const NewSequence& added) {
  HALLEY_CHECK(added.num_prompt_tokens >= 1 && added.max_tokens >= 1, added.num_prompt_tokens,
               added.max_tokens);
  HALLEY_CHECK(can_fit(config_, added.num_prompt_tokens, added.max_tokens), added.num_prompt_tokens,
               added.max_tokens);
  const auto [it, is_added] = sequences_.try_emplace(added.id);
  HALLEY_CHECK(is_added, added.id);
  Sequence& sequence = it->second;
  const bool has_priority = config_.policy == SchedulingPolicy::kPriority;
  sequence.id = added.id;
  sequence.rank = {has_priority ? added.priority : 0, next_arrival_++};
  sequence.num_prompt_tokens = added.num_prompt_tokens;
  sequence.num_tokens = sequence.num_known = added.num_prompt_tokens;
  sequence.num_tokens_max = num_tokens_max(config_, added.num_prompt_tokens, added.max_tokens);
  sequence.needs_prompt_logits = added.needs_prompt_logits;
  sequence.is_chosen_by_host = added.is_chosen_by_host;
  sequence.cache_salt = added.cache_salt;
  waiting_.emplace(sequence.rank, &sequence);
}

StepPlan Scheduler::schedule() {
  StepPlan plan;
  num_prompt_logits_ = 0;
  admit_better(plan);
  plan_decodes(plan);
  plan_prefills(plan);
  // Pages that a preemption has just freed go to the running sequences.
  if (plan.preempted.empty()) admit(plan);
  return plan;
}

void Scheduler::plan_rows(Sequence& sequence, int64_t num_rows, StepPlan& plan) {
  const bool is_complete = num_rows == sequence.num_left();
  plan.sequences.push_back(
      {.id = sequence.id,
       .num_past = sequence.num_computed,
       .num_rows = num_rows,
       .is_complete = is_complete,
       .is_last = is_complete && sequence.num_tokens + 1 == sequence.num_tokens_max,
       .page_table = sequence.page_table});
  plan.num_rows += num_rows;
  if (sequence.is_scored()) num_prompt_logits_ += std::min(num_rows, sequence.num_left() - 1);
}

int64_t Scheduler::num_rows_for(const Sequence& sequence, const StepPlan& plan) const {
  const int64_t num_rows =
      std::min(sequence.num_left(), config_.max_num_batched_tokens - plan.num_rows);
  if (!sequence.is_scored()) return num_rows;
  // Every prompt row but the last, which gives the first token, scores the next token.
  const int64_t num_logits = config_.max_num_prompt_logits - num_prompt_logits_;
  return std::min(num_rows, sequence.num_left() - 1) <= num_logits ? num_rows : num_logits;
}

void Scheduler::plan_decodes(StepPlan& plan) {
  // Preemption takes from the end of the map, and this loop walks from its beginning: planned
  // sequences keep their pages, and the loop ends at the latest at the preempted one.
  for (auto it = running_.begin(); it != running_.end();) {
    Sequence& sequence = *it->second;
    HALLEY_CHECK(sequence.num_known < sequence.num_tokens_max, sequence.id, sequence.num_known);
    if (!sequence.can_decode()) {
      ++it;
      continue;
    }
    const int64_t num_pages = ceil_div(sequence.num_tokens, config_.page_tokens);
    const int64_t num_missing = num_pages - static_cast<int64_t>(sequence.page_table.size());
    if (num_missing > 0 && !pages_.try_take(num_missing, sequence.page_table)) {
      // Alone it has all pages, and add() has checked that they suffice.
      HALLEY_CHECK(running_.size() > 1, sequence.id);
      const bool is_last = std::next(it) == running_.end();
      preempt_last(plan);
      if (is_last) return;
      continue;  // the same sequence again, with more free pages
    }
    plan_rows(sequence, 1, plan);
    ++it;
  }
}

void Scheduler::preempt_last(StepPlan& plan) {
  const auto last = std::prev(running_.end());
  Sequence& sequence = *last->second;
  pages_.give_back(sequence.page_table);
  sequence.num_computed = 0;
  sequence.num_kept = 0;
  plan.preempted.push_back(sequence.id);
  waiting_.insert(running_.extract(last));
}

void Scheduler::plan_prefills(StepPlan& plan) {
  // Their pages were taken at admission. A sequence with one token left is a decode, not a prefill.
  for (const auto& [rank, sequence] : running_) {
    if (plan.num_rows == config_.max_num_batched_tokens) return;
    if (sequence->num_left() <= 1) continue;
    const int64_t num_rows = num_rows_for(*sequence, plan);
    if (num_rows > 0) plan_rows(*sequence, num_rows, plan);
  }
}

// Runs before anything is planned, so that planned sequences keep their pages.
void Scheduler::admit_better(StepPlan& plan) {
  while (!waiting_.empty() && !running_.empty() &&
         waiting_.begin()->first.priority < std::prev(running_.end())->first.priority) {
    if (!try_start(*waiting_.begin()->second, plan)) return;
  }
}

void Scheduler::admit(StepPlan& plan) {
  // At equal priority a waiting sequence, preempted ones too, is younger than any running one.
  while (!waiting_.empty()) {
    Sequence& sequence = *waiting_.begin()->second;
    if (num_rows_for(sequence, plan) == 0 || !try_start(sequence, plan)) return;
    HALLEY_CHECK(plan.preempted.empty(), sequence.id);  // admit_better() went before
    plan_rows(sequence, num_rows_for(sequence, plan), plan);
  }
}

// Takes all pages for the tokens of the waiting `sequence` and lets it run, or changes nothing (but
// cached pages that it found become the most recently used).
bool Scheduler::try_start(Sequence& sequence, StepPlan& plan) {
  if (!sequence.is_known()) return false;
  share_prefix(sequence);
  const auto num_shared = static_cast<int64_t>(sequence.page_table.size());
  const int64_t num_pages = ceil_div(sequence.num_tokens, config_.page_tokens) - num_shared;
  const int64_t num_preempted = num_to_preempt(sequence, num_pages);
  if (num_preempted == kNeverEnough) {
    pages_.give_back(sequence.page_table);
    sequence.num_kept = 0;
    return false;
  }
  for (int64_t i = 0; i < num_preempted; ++i) preempt_last(plan);
  HALLEY_CHECK(pages_.try_take(num_pages, sequence.page_table), num_pages);
  sequence.num_kept = num_shared;
  sequence.num_computed = num_shared * config_.page_tokens;
  if (!sequence.has_run) {
    sequence.has_run = true;
    plan.started.push_back({sequence.id, sequence.num_computed});
    if (config_.has_prefix_caching && !sequence.needs_prompt_logits) {
      num_prefix_queries_ += sequence.num_tokens;
      num_prefix_hits_ += sequence.num_computed;
    }
  }
  running_.insert(waiting_.extract(sequence.rank));
  return true;
}

// The number of running sequences of worse priority, last ranks first, to preempt so that there are
// `num_pages` for `sequence`, a spare page for each other running one, and a free running slot.
// Without spare pages it would soon be preempted itself, and its prefill lost.
int64_t Scheduler::num_to_preempt(const Sequence& sequence, int64_t num_pages) const {
  int64_t num_free = pages_.num_free();
  int64_t num_others = std::count_if(running_.begin(), running_.end(),
                                     [](const auto& it) { return !it.second->is_ending(); });
  const auto has_room = [&] {
    return num_others < config_.max_num_seqs && num_pages + num_others <= num_free;
  };
  int64_t num_preempted = 0;
  std::unordered_map<int32_t, int64_t> num_dropped;  // references of the sequences to preempt
  for (auto it = running_.rbegin(); !has_room(); ++it) {
    if (it == running_.rend() || it->first.priority <= sequence.rank.priority) {
      return kNeverEnough;
    }
    for (const int32_t page : it->second->page_table) {
      if (++num_dropped[page] == pages_.num_references(page)) ++num_free;
    }
    if (!it->second->is_ending()) --num_others;
    ++num_preempted;
  }
  return num_preempted;
}

PrefixKey Scheduler::key_of(const Sequence& sequence, std::span<const int32_t> tokens) const {
  const auto index = static_cast<size_t>(sequence.num_kept);
  const auto page_tokens = static_cast<size_t>(config_.page_tokens);
  return {.parent = index == 0 ? 0 : pages_.prefixes().number(sequence.page_table[index - 1]),
          .salt = sequence.cache_salt,
          .tokens = tokens.subspan(index * page_tokens, page_tokens)};
}

void Scheduler::share_prefix(Sequence& sequence) {
  if (!config_.has_prefix_caching || sequence.is_scored()) return;
  const std::span<const int32_t> tokens = tokens_of_(sequence.id);
  // The last token is computed in any case: its logits choose the next one.
  const int64_t num_pages_max = (sequence.num_tokens - 1) / config_.page_tokens;
  sequence.num_kept = 0;
  while (sequence.num_kept < num_pages_max &&
         pages_.try_share(key_of(sequence, tokens), sequence.page_table)) {
    ++sequence.num_kept;
  }
}

void Scheduler::keep_full_pages(Sequence& sequence) {
  if (!config_.has_prefix_caching) return;
  const int64_t num_full =
      std::min(sequence.num_computed, sequence.num_known) / config_.page_tokens;
  if (sequence.num_kept == num_full) return;
  const std::span<const int32_t> tokens = tokens_of_(sequence.id);
  while (sequence.num_kept < num_full) {
    int32_t& page = sequence.page_table[static_cast<size_t>(sequence.num_kept)];
    page = pages_.keep(page, key_of(sequence, tokens));
    ++sequence.num_kept;
  }
}

void Scheduler::launched(const StepPlan& plan) {
  for (const ScheduledSequence& scheduled : plan.sequences) {
    const auto it = sequences_.find(scheduled.id);
    if (it == sequences_.end()) continue;  // removed meanwhile
    Sequence& sequence = it->second;
    HALLEY_CHECK(sequence.num_computed == scheduled.num_past, sequence.id, sequence.num_computed);
    sequence.num_computed += scheduled.num_rows;
    if (scheduled.is_complete) ++sequence.num_tokens;
    keep_full_pages(sequence);
  }
}

void Scheduler::note_token(SequenceId id) {
  Sequence& sequence = sequences_.at(id);
  HALLEY_CHECK(!sequence.is_known(), id, sequence.num_tokens);
  ++sequence.num_known;
  keep_full_pages(sequence);
}

bool Scheduler::remove(SequenceId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return false;
  Sequence& sequence = it->second;
  pages_.give_back(sequence.page_table);
  waiting_.erase(sequence.rank);
  running_.erase(sequence.rank);
  sequences_.erase(it);
  return true;
}

}  // namespace halley
