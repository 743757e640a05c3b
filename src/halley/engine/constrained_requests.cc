#include "halley/engine/constrained_requests.h"

#include <algorithm>
#include <utility>

#include "halley/base/check.h"

namespace halley {

void ConstrainedRequests::begin(Entry& entry, std::optional<int32_t> token_id, bool needs_mask) {
  entry.has_job = entry.is_fresh = true;
  if (!entry.job->begin(token_id, needs_mask)) executor_.post(entry.job);
}

void ConstrainedRequests::add(LiveRequest& live) { waiting_.emplace(rank_of(live), &live); }

ConstrainedRequests::Rank ConstrainedRequests::rank_of(const LiveRequest& live) const {
  return {limits_.has_priority ? live.sequence.priority : 0, live.sequence.id};
}

bool ConstrainedRequests::has_room() const {
  int64_t num_jobs = 0, num_short_jobs = 0;
  for (const auto& [id, entry] : entries_) {
    if (!entry.has_job || entry.job->is_done()) continue;
    ++num_jobs;
    if (!entry.job->is_long()) ++num_short_jobs;
  }
  return num_jobs < limits_.num_jobs && num_short_jobs < limits_.num_short_jobs;
}

std::vector<LiveRequest*> ConstrainedRequests::let_in() {
  std::vector<LiveRequest*> found;
  while (!waiting_.empty() && has_room()) {
    LiveRequest& live = *waiting_.begin()->second;
    waiting_.erase(waiting_.begin());
    Entry& entry = entries_[live.sequence.id];
    entry.live = &live;
    entry.job = live.constraint;
    begin(entry, std::nullopt, true);
    found.push_back(&live);
  }
  return found;
}

void ConstrainedRequests::end(const LiveRequest& live) {
  if (live.constraint == nullptr) return;
  waiting_.erase(rank_of(live));
  live.constraint->cancel();
  entries_.erase(live.sequence.id);
}

void ConstrainedRequests::note_logits(const LiveRequest& live) {
  entries_.at(live.sequence.id).has_logits = true;
}

void ConstrainedRequests::drop_logits(const LiveRequest& live) {
  if (live.constraint != nullptr) entries_.at(live.sequence.id).has_logits = false;
}

std::vector<LiveRequest*> ConstrainedRequests::choosable() const {
  std::vector<LiveRequest*> found;
  for (const auto& [id, entry] : entries_) {
    if (entry.has_logits && entry.has_mask) found.push_back(entry.live);
  }
  return found;
}

void ConstrainedRequests::note_choice(const LiveRequest& live) {
  Entry& entry = entries_.at(live.sequence.id);
  entry.has_logits = entry.has_mask = false;
}

void ConstrainedRequests::take_choice(const LiveRequest& live, const ChosenToken& chosen,
                                      bool needs_mask) {
  Entry& entry = entries_.at(live.sequence.id);
  entry.chosen = chosen;
  begin(entry, chosen.token.token_id, needs_mask);
}

std::vector<ConstrainedRequests::Settled> ConstrainedRequests::settled() {
  std::vector<Settled> found;
  for (auto& [id, entry] : entries_) {
    if (!entry.has_job || !entry.job->is_done()) continue;
    entry.has_job = false;
    entry.has_mask = entry.job->state() == OutputState::kOpen;
    const OutputState state = entry.job->state();
    if (!entry.chosen && state == OutputState::kOpen) continue;
    found.push_back({entry.live, std::exchange(entry.chosen, std::nullopt), state});
  }
  return found;
}

bool ConstrainedRequests::has_fresh_job() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& it) {
    return it.second.has_job && it.second.is_fresh && !it.second.job->is_done();
  });
}

bool ConstrainedRequests::has_job() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& it) { return it.second.has_job; });
}

void ConstrainedRequests::note_plan() {
  for (auto& [id, entry] : entries_) entry.is_fresh = false;
}

}  // namespace halley
