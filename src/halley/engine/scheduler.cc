#include "halley/engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"

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
  sequence.needs_all_rows = added.needs_all_rows;
  sequence.is_choice_deferred = added.is_choice_deferred;
  sequence.is_pinned = added.is_pinned;
  // A prefix of one letter, so that no salt of a caller leads to the pages of the other kind.
  sequence.cache_salt = str(added.is_pinned ? "p" : "u", added.cache_salt);
  waiting_.emplace(sequence.rank, &sequence);
}

bool Scheduler::is_in_scope(const Sequence& sequence) const {
  return scope_ == StepScope::kAll || sequence.is_pinned == (scope_ == StepScope::kPinned);
}

StepOutline Scheduler::outline() const {
  StepOutline outline;
  const auto part_of = [](const Sequence& sequence, bool can_run) -> StepOutline::Part {
    return {.id = sequence.id,
            .num_past = sequence.num_computed,
            .num_left = sequence.num_left(),
            .num_unknown = sequence.num_tokens - sequence.num_known,
            .is_pinned = sequence.is_pinned,
            .can_run = can_run};
  };
  int64_t num_running = 0;
  for (const auto& [rank, sequence] : running_) {
    if (!sequence->is_ending()) ++num_running;
    if (sequence->num_left() == 0 || sequence->is_ending()) continue;
    const bool is_decode = sequence->has_rows && sequence->can_decode();
    (is_decode ? outline.decodes : outline.prefills).push_back(part_of(*sequence, true));
  }
  // As admit() does, but for the pages that the prefix cache has.
  int64_t num_free = pages_.num_free();
  bool can_run = true;
  for (const auto& [rank, sequence] : waiting_) {
    if (!sequence->is_known()) continue;
    const int64_t num_pages = ceil_div(sequence->num_tokens, config_.page_tokens);
    can_run = can_run && num_running < config_.max_num_seqs && num_pages + num_running <= num_free;
    if (can_run) {
      num_free -= num_pages;
      ++num_running;
    }
    outline.prefills.push_back(part_of(*sequence, can_run));
  }
  return outline;
}

StepPlan Scheduler::schedule(const PrefillLimitOf& limit_of, StepScope scope) {
  StepPlan plan;
  scope_ = scope;
  num_prompt_logits_ = 0;
  admit_better(plan);
  plan_decodes(plan);
  // Pages that a preemption has just freed go to the running sequences.
  if (plan.preempted.empty()) admit(plan);
  plan_prefills(limit_of, plan);
  return plan;
}

void Scheduler::plan_rows(Sequence& sequence, int64_t num_rows, StepPlan& plan) {
  if (!sequence.has_rows) note_first_rows(sequence, plan);
  const bool is_complete = num_rows == sequence.num_left();
  plan.sequences.push_back(
      {.id = sequence.id,
       .num_past = sequence.num_computed,
       .num_rows = num_rows,
       .is_complete = is_complete,
       .is_last = is_complete && sequence.num_tokens + 1 == sequence.num_tokens_max,
       .page_table = sequence.page_table});
  plan.num_rows += num_rows;
}

void Scheduler::note_first_rows(Sequence& sequence, StepPlan& plan) {
  sequence.has_rows = true;
  ++num_with_rows_;
  if (sequence.has_run) return;
  sequence.has_run = true;
  plan.started.push_back({sequence.id, sequence.num_computed});
  if (config_.has_prefix_caching && !sequence.skips_nothing()) {
    num_prefix_queries_ += sequence.num_tokens;
    num_prefix_hits_ += sequence.num_computed;
  }
}

// The stages are busy all the time if each step has as many of those that decode.
int64_t Scheduler::num_decodes_max() const {
  if (config_.num_stages == 1) return config_.max_num_seqs;
  const auto num_decodes = std::count_if(running_.begin(), running_.end(), [](const auto& it) {
    const Sequence& sequence = *it.second;
    return sequence.num_left() <= 1 && !sequence.is_ending();
  });
  return ceil_div(static_cast<int64_t>(num_decodes), config_.num_stages);
}

void Scheduler::plan_decodes(StepPlan& plan) {
  const int64_t num_decodes_max = this->num_decodes_max();
  // Preemption takes from the end of the map, and this loop walks from its beginning: planned
  // sequences keep their pages, and the loop ends at the latest at the preempted one.
  for (auto it = running_.begin(); it != running_.end();) {
    Sequence& sequence = *it->second;
    HALLEY_CHECK(sequence.num_known < sequence.num_tokens_max, sequence.id, sequence.num_known);
    const bool is_early = config_.num_stages > 1 && !sequence.is_known();
    const bool is_full = plan.num_decodes == num_decodes_max;
    if (!sequence.can_decode() || !is_in_scope(sequence) || is_early || is_full) {
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
    ++plan.num_decodes;
    ++it;
  }
}

void Scheduler::preempt_last(StepPlan& plan) {
  const auto last = std::prev(running_.end());
  Sequence& sequence = *last->second;
  pages_.give_back(sequence.page_table);
  sequence.num_computed = 0;
  sequence.num_kept = 0;
  if (sequence.has_rows) --num_with_rows_;
  sequence.has_rows = false;
  plan.preempted.push_back(sequence.id);
  waiting_.insert(running_.extract(last));
}

// The running sequences in their prefill, in order of rank. Those that have no rows yet skip what
// others have computed since their admission.
std::vector<Scheduler::Prefill> Scheduler::find_prefills() {
  std::vector<Prefill> prefills;
  for (const auto& [rank, sequence] : running_) {
    // One with a token left has been planned as a decode, unless it was admitted just now.
    if (sequence->has_rows && sequence->num_left() <= 1) continue;
    if (!is_in_scope(*sequence)) continue;
    if (!sequence->has_rows) {
      share_prefix(*sequence);
      sequence->num_computed = sequence->num_kept * config_.page_tokens;
    }
    prefills.push_back({.sequence = sequence});
  }
  return prefills;
}

PrefillOutlook Scheduler::outlook(std::span<const Prefill> best) const {
  PrefillOutlook outlook;
  outlook.num_decodes = std::count_if(running_.begin(), running_.end(), [](const auto& it) {
    return it.second->has_rows && it.second->num_left() <= 1 && !it.second->is_ending();
  });
  const auto shortest = std::min_element(best.begin(), best.end(), Prefill::is_shorter);
  outlook.num_past =
      std::max(best.front().sequence->num_computed, shortest->sequence->num_computed);
  return outlook;
}

void Scheduler::plan_prefills(const PrefillLimitOf& limit_of, StepPlan& plan) {
  std::vector<Prefill> prefills = find_prefills();
  if (prefills.empty()) return;
  const auto end_of_priority = [&](auto begin) {
    return std::find_if(begin, prefills.end(), [&](const Prefill& prefill) {
      return prefill.sequence->rank.priority != begin->sequence->rank.priority;
    });
  };
  int64_t num_rows = config_.max_num_batched_tokens - plan.num_rows;
  if (limit_of) {
    num_rows = std::min(num_rows,
                        limit_of(outlook({prefills.begin(), end_of_priority(prefills.begin())})));
  }
  for (auto begin = prefills.begin(); begin != prefills.end() && num_rows > 0;) {
    const auto end = end_of_priority(begin);
    num_rows -= share_rows({begin, end}, num_rows);
    begin = end;
  }
  for (const Prefill& prefill : prefills) {
    if (prefill.num_rows > 0) plan_rows(*prefill.sequence, prefill.num_rows, plan);
  }
}

// Shares `num_rows` among the prefills of a priority, which are in order of rank. Returns how many
// of them have been taken.
int64_t Scheduler::share_rows(std::span<Prefill> prefills, int64_t num_rows) {
  int64_t num_given = 0;
  const int64_t num_by_rank = ceil_div(num_rows, int64_t{2});
  for (Prefill& prefill : prefills) num_given += give_rows(prefill, num_by_rank - num_given);
  std::vector<Prefill*> by_length;
  for (Prefill& prefill : prefills) by_length.push_back(&prefill);
  std::stable_sort(by_length.begin(), by_length.end(),
                   [](const Prefill* a, const Prefill* b) { return Prefill::is_shorter(*a, *b); });
  for (Prefill* prefill : by_length) num_given += give_rows(*prefill, num_rows - num_given);
  return num_given;
}

// Gives a prefill up to `num_rows` rows more. Returns how many.
int64_t Scheduler::give_rows(Prefill& prefill, int64_t num_rows) {
  const Sequence& sequence = *prefill.sequence;
  int64_t sum = std::min(sequence.num_left(), prefill.num_rows + num_rows);
  const int64_t num_logits = sequence.num_prompt_logits(prefill.num_rows);
  const int64_t num_logits_max = config_.max_num_prompt_logits - num_prompt_logits_ + num_logits;
  if (sequence.num_prompt_logits(sum) > num_logits_max) sum = num_logits_max;
  num_prompt_logits_ += sequence.num_prompt_logits(sum) - num_logits;
  return sum - std::exchange(prefill.num_rows, sum);
}

// Runs before anything is planned, so that planned sequences keep their pages.
void Scheduler::admit_better(StepPlan& plan) {
  while (!waiting_.empty() && !running_.empty() &&
         waiting_.begin()->first.priority < std::prev(running_.end())->first.priority) {
    if (!try_start(*waiting_.begin()->second, plan)) return;
  }
}

void Scheduler::admit(StepPlan& plan) {
  // At equal priority a waiting sequence, preempted ones too, is younger than any running one. A
  // step without rows for it admits it nevertheless, so that one with a short prefill behind it is
  // found.
  while (!waiting_.empty() && try_start(*waiting_.begin()->second, plan)) {
    HALLEY_CHECK(plan.preempted.empty(), plan.preempted.front());  // admit_better() went before
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

// Refers to the pages that the prefix cache has behind the first num_kept ones of a sequence. They
// are appended to its table, or take the place of its own pages there, which hold nothing yet.
void Scheduler::share_prefix(Sequence& sequence) {
  if (!config_.has_prefix_caching || sequence.skips_nothing()) return;
  const std::span<const int32_t> tokens = tokens_of_(sequence.id);
  // The last token is computed in any case: its logits choose the next one.
  const int64_t num_pages_max = (sequence.num_tokens - 1) / config_.page_tokens;
  std::vector<int32_t> found, replaced;
  while (sequence.num_kept < num_pages_max && pages_.try_share(key_of(sequence, tokens), found)) {
    const auto index = static_cast<size_t>(sequence.num_kept++);
    if (index < sequence.page_table.size()) {
      replaced.push_back(std::exchange(sequence.page_table[index], found.back()));
    } else {
      sequence.page_table.push_back(found.back());
    }
  }
  pages_.give_back(replaced);
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
    if (scheduled.is_complete && !sequence.is_choice_deferred) ++sequence.num_tokens;
    keep_full_pages(sequence);
  }
}

bool Scheduler::choice_launched(SequenceId id) {
  Sequence& sequence = sequences_.at(id);
  HALLEY_CHECK(sequence.is_choice_deferred && sequence.num_left() == 0, id, sequence.num_left());
  ++sequence.num_tokens;
  return sequence.is_ending();
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
  if (sequence.has_rows) --num_with_rows_;
  waiting_.erase(sequence.rank);
  running_.erase(sequence.rank);
  sequences_.erase(it);
  return true;
}

}  // namespace halley
