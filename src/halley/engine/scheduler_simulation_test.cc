// A simulation of the scheduler under random load: arrivals, priorities, prompts that begin alike,
// cancels, ends that the scheduler does not foresee, deadlines by a clock of its own, few pages,
// limits on prefill rows, up to two steps in flight, and a model that sees only the pages.
// Invariants are checked after every launch and every wait.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/engine/scheduler.h"
#include "halley/engine/simulation_options.h"
#include "halley/engine/testing/prefill_shares.h"
#include "halley/engine/testing/simulated_sequence.h"

namespace halley {
namespace {

using testing::Test;

class Simulation {
 public:
  Simulation(uint64_t seed, ReachedCases& reached)
      : random_(seed),
        config_(random_config([this](int64_t min, int64_t max) { return pick(min, max); })),
        scheduler_(config_,
                   [this](SequenceId id) {
                     const Live& live = *live_.at(id);
                     return std::span<const int32_t>(live.tokens).first(live.num_known);
                   }),
        reached_(reached),
        num_left_in_flight_(static_cast<size_t>(pick(0, 2))),
        runs_at_launch_(pick(0, 1) == 0),
        has_limits_(pick(0, 1) == 0) {
    slots_.assign(static_cast<size_t>(config_.num_pages * config_.page_tokens), 0);
    for (std::vector<int32_t>& text : texts_) {
      for (int i = 0; i < 40; ++i) text.push_back(static_cast<int32_t>(pick(0, 3)));
    }
  }

  void run(int64_t num_steps) {
    const int64_t load = pick(2, 12);  // about how many live at a time
    for (int64_t i = 0; i < num_steps && !Test::HasFatalFailure(); ++i) {
      if (static_cast<int64_t>(live_.size()) < load || pick(0, 20) == 0) submit();
      if (pick(0, 40) == 0) cancel_any();
      step();
    }
    int64_t num_steps_left = 100'000;  // far more than those that live can need
    while (!(live_.empty() && steps_.empty()) && !Test::HasFatalFailure()) {
      ASSERT_GT(--num_steps_left, 0) << "starvation";
      step();
    }
  }

 private:
  using Live = SimulatedSequence;
  using LivePtr = std::shared_ptr<Live>;
  using Part = SimulatedPart;
  using Step = std::vector<Part>;

  int64_t pick(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(random_() % static_cast<uint64_t>(max - min + 1));
  }

  // A prefix that others share, and some tokens of its own.
  void append_prompt(Live& live) {
    const std::vector<int32_t>& text = texts_[static_cast<size_t>(pick(0, 2))];
    const int64_t num_same = pick(0, 3) != 0 ? pick(0, 30) : 0;
    for (int64_t i = 0; i < num_same; ++i) live.append(text[static_cast<size_t>(i)]);
    const int64_t num_own = pick(num_same == 0 ? 1 : 0, 10);
    for (int64_t i = 0; i < num_own; ++i) live.append(static_cast<int32_t>(pick(0, 3)));
  }

  void submit() {
    const SequenceId id = next_id_++;
    const auto added = std::make_shared<Live>();
    Live& live = *added;
    live.priority = pick(-2, 2);
    live.salt = pick(0, 4) == 0 ? "s" : "";
    append_prompt(live);
    live.num_prompt_tokens = live.tokens.size();
    const auto num_prompt_tokens = static_cast<int64_t>(live.num_prompt_tokens);
    const int64_t max_tokens = pick(1, 30);
    const int64_t num_tokens_max = std::min(num_prompt_tokens + max_tokens, config_.max_model_len);
    const bool fits = num_prompt_tokens < config_.max_model_len &&
                      ceil_div(num_tokens_max - 1, config_.page_tokens) <= config_.num_pages;
    ASSERT_EQ(Scheduler::can_fit(config_, num_prompt_tokens, max_tokens), fits);
    if (!fits) return;
    live.num_tokens_max = static_cast<size_t>(num_tokens_max);
    live.num_tokens_end = live.num_tokens_max;
    if (pick(0, 1) == 0) {
      live.num_tokens_end = static_cast<size_t>(pick(num_prompt_tokens + 1, num_tokens_max));
    }
    live.num_launched = live.num_known = live.num_prompt_tokens;
    live.is_scored = pick(0, 9) == 0;
    live.is_choice_deferred = pick(0, 1) == 0;
    if (pick(0, 5) == 0) live.deadline = now_ + pick(0, 300);
    scheduler_.add({.id = id,
                    .num_prompt_tokens = num_prompt_tokens,
                    .max_tokens = max_tokens,
                    .priority = live.priority,
                    .cache_salt = live.salt,
                    .needs_prompt_logits = live.is_scored,
                    .is_choice_deferred = live.is_choice_deferred});
    live_.emplace(id, added);
  }

  void remove(SequenceId id) {
    ASSERT_TRUE(scheduler_.remove(id));
    ASSERT_FALSE(scheduler_.remove(id));
    live_.erase(id);
  }

  void cancel_any() {
    if (live_.empty()) return;
    remove(std::next(live_.begin(), pick(0, static_cast<int64_t>(live_.size()) - 1))->first);
    ++reached_.num_cancels;
  }

  void end_expired() {
    now_ += pick(0, 5);
    std::vector<SequenceId> expired;
    for (const auto& [id, live] : live_) {
      if (live->deadline && *live->deadline <= now_) expired.push_back(id);
    }
    reached_.num_expired += static_cast<int64_t>(expired.size());
    for (const SequenceId id : expired) remove(id);
  }

  bool is_running(SequenceId id) const { return !scheduler_.page_table(id).empty(); }

  int64_t num_running() const {
    return std::count_if(live_.begin(), live_.end(), [this](const auto& it) {
      return is_running(it.first) && !it.second->is_ending();
    });
  }

  // Priority, then arrival.
  std::pair<int64_t, SequenceId> rank(SequenceId id) const {
    return {config_.policy == SchedulingPolicy::kPriority ? live_.at(id)->priority : 0, id};
  }

  void step() {
    end_expired();
    launch_choices();
    const bool has_step = launch();
    if (Test::HasFatalFailure()) return;
    check_state();
    while (steps_.size() > num_left_in_flight_ || (!has_step && !steps_.empty())) {
      wait();
      if (Test::HasFatalFailure()) return;
      check_state();
      if (!has_step) return;
    }
  }

  // Choices come late, and in any order.
  void launch_choices() {
    for (const auto& [id, live] : live_) {
      if (!live->has_logits || !live->is_known() || pick(0, 2) == 0) continue;
      live->has_logits = false;
      ++live->num_launched;
      ++reached_.num_deferred;
      ASSERT_EQ(scheduler_.choice_launched(id), live->is_ending());
      Step step = {{.id = id, .live = live, .is_complete = true, .is_choice = true}};
      if (runs_at_launch_) run(step);
      steps_.push_back(std::move(step));
    }
  }

  bool launch() {
    std::set<SequenceId> decodes;
    decoding_.clear();
    for (const auto& [id, live] : live_) {
      if (!is_running(id) || live->num_computed + 1 < live->num_launched) continue;
      if (!live->is_ending()) decoding_.insert(id);
      if (live->num_computed == 0) continue;  // a prefill, even of a prompt of one token
      const bool may_run = live->num_computed + 1 == live->num_launched && live->may_go_on() &&
                           (config_.num_stages == 1 || live->is_known());
      if (may_run) decodes.insert(id);
    }
    limit_.reset();
    const StepPlan plan = scheduler_.schedule(
        has_limits_ ? [this](const PrefillOutlook& outlook) { return limit_of(outlook); }
                    : PrefillLimitOf());
    ++reached_.num_steps;
    for (const SequenceId id : plan.preempted) {
      decodes.erase(id);
      live_.at(id)->num_computed = 0;
      reached_.num_preempted_deferred += live_.at(id)->has_logits;
      live_.at(id)->has_logits = false;
      reached_.num_preempted_unknown += !live_.at(id)->is_known();
    }
    reached_.num_preemptions += static_cast<int64_t>(plan.preempted.size());
    check_plan(plan, decodes);
    if (Test::HasFatalFailure()) return false;
    check_started(plan);
    Step step;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      check_written_pages(scheduled);
      step.push_back(part_of(scheduled));
    }
    if (pick(0, 100) == 0) cancel_any();
    scheduler_.launched(plan);
    if (step.empty()) return false;
    if (runs_at_launch_) run(step);
    steps_.push_back(std::move(step));
    return true;
  }

  // None in some steps, as the engine measures how long decodes alone take.
  int64_t limit_of(const PrefillOutlook& outlook) {
    EXPECT_FALSE(limit_) << "asked twice";
    EXPECT_LE(outlook.num_decodes, num_running());
    EXPECT_LT(outlook.num_past, config_.max_model_len);
    limit_ = outlook.num_decodes > 0 && pick(0, 5) == 0 ? 0 : pick(1, 12);
    return *limit_;
  }

  void check_sharing(const StepPlan& plan) {
    const auto prefills = std::span(plan.sequences).subspan(static_cast<size_t>(plan.num_decodes));
    ASSERT_LE(plan.num_rows - plan.num_decodes, limit_.value_or(config_.max_num_batched_tokens));
    std::map<SequenceId, const ScheduledSequence*> scheduled;
    for (const ScheduledSequence& prefill : prefills) scheduled[prefill.id] = &prefill;
    PrefillShares shares;
    for (const auto& [id, live] : live_) {
      if (!is_running(id) || is_decode(plan, id) || !live->may_go_on()) continue;
      if (config_.num_stages > 1 && decoding_.contains(id) && live->num_computed > 0) continue;
      if (live->is_scored) return;  // their own bound on rows comes in between
      // How much it skips of its prompt is known once it has rows.
      const auto it = scheduled.find(id);
      const int64_t num_past =
          it == scheduled.end() ? static_cast<int64_t>(live->num_computed) : it->second->num_past;
      shares[rank(id)] = {.num_left = static_cast<int64_t>(live->num_launched) - num_past,
                          .num_rows = it == scheduled.end() ? 0 : it->second->num_rows};
    }
    reached_.num_shared_steps += shares.size() > 1;
    check_prefill_shares(shares);
  }

  static bool is_decode(const StepPlan& plan, SequenceId id) {
    return std::any_of(plan.sequences.begin(), plan.sequences.begin() + plan.num_decodes,
                       [&](const auto& it) { return it.id == id; });
  }

  Part part_of(const ScheduledSequence& scheduled) {
    const LivePtr& live = live_.at(scheduled.id);
    Part part = {.id = scheduled.id,
                 .live = live,
                 .num_past = static_cast<size_t>(scheduled.num_past),
                 .num_after = static_cast<size_t>(scheduled.num_past + scheduled.num_rows),
                 .is_complete = scheduled.is_complete,
                 .is_choice = false,
                 .page_table = {scheduled.page_table.begin(), scheduled.page_table.end()}};
    reached_.num_unknown_inputs += part.num_after > live->num_known;
    live->num_computed = part.num_after;
    live->has_logits = part.is_complete && live->is_choice_deferred;
    live->num_launched += part.is_complete && !live->is_choice_deferred ? 1 : 0;
    return part;
  }

  // In the order of the launches, even if sequences have ended meanwhile.
  void run(const Step& step) {
    for (const Part& part : step) {
      part.is_choice ? part.live->append(next_token(part.live->chains.back())) : compute(part);
      if (Test::HasFatalFailure()) return;
    }
  }

  void wait() {
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    if (!runs_at_launch_) run(step);
    if (Test::HasFatalFailure()) return;
    for (const Part& part : step) {
      if (!live_.contains(part.id)) ++reached_.num_dropped;
      const bool has_token = part.is_choice || !part.live->is_choice_deferred;
      if (part.is_complete && has_token && live_.contains(part.id)) know_token(part.id);
    }
  }

  void know_token(SequenceId id) {
    Live& live = *live_.at(id);
    if (++live.num_known == live.num_tokens_end) {
      finish(id);
    } else {
      scheduler_.note_token(id);
    }
  }

  void check_plan(const StepPlan& plan, const std::set<SequenceId>& decodes) {
    const bool waits_for_tokens = std::any_of(live_.begin(), live_.end(), [](const auto& it) {
      return !it.second->is_known() || it.second->has_logits;
    });
    reached_.num_limited += limit_.has_value();
    ASSERT_TRUE(waits_for_tokens || plan.sequences.empty() == live_.empty());
    ASSERT_LE(plan.num_rows, config_.max_num_batched_tokens);
    ASSERT_LE(static_cast<int64_t>(plan.sequences.size()), config_.max_num_seqs);
    ASSERT_LE(num_running(), config_.max_num_seqs);
    int64_t num_rows = 0, num_scored_rows = 0;
    std::set<SequenceId> planned;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      ASSERT_TRUE(planned.insert(scheduled.id).second);
      const Live& live = *live_.at(scheduled.id);
      const int64_t num_after = scheduled.num_past + scheduled.num_rows;
      ASSERT_GE(scheduled.num_rows, 1);
      ASSERT_TRUE(live.may_go_on()) << scheduled.id;
      ASSERT_TRUE(config_.num_stages == 1 || live.is_known()) << scheduled.id;
      ASSERT_EQ(scheduled.is_complete, num_after == static_cast<int64_t>(live.num_launched));
      ASSERT_EQ(scheduled.is_last,
                scheduled.is_complete && live.num_launched + 1 == live.num_tokens_max);
      ASSERT_GE(static_cast<int64_t>(scheduled.page_table.size()) * config_.page_tokens, num_after);
      num_rows += scheduled.num_rows;
      if (live.is_scored && live.num_launched == live.num_prompt_tokens) {
        num_scored_rows += scheduled.num_rows - (scheduled.is_complete ? 1 : 0);
      }
    }
    ASSERT_EQ(num_rows, plan.num_rows);
    ASSERT_LE(num_scored_rows, config_.max_num_prompt_logits);
    reached_.num_scored_rows += num_scored_rows;
    check_decodes(plan, decodes, planned);
    if (limit_ != 0) check_first_rank(planned);
    check_sharing(plan);
  }

  // All that can run, or the share of a step where others are in flight.
  void check_decodes(const StepPlan& plan, const std::set<SequenceId>& decodes,
                     const std::set<SequenceId>& planned) {
    if (config_.num_stages == 1) {
      for (const SequenceId id : decodes) ASSERT_TRUE(planned.contains(id)) << "decode " << id;
      return;
    }
    const int64_t share = ceil_div(static_cast<int64_t>(decoding_.size()), config_.num_stages);
    reached_.num_shared_decodes += static_cast<int64_t>(decodes.size()) > share;
    if (!plan.preempted.empty()) return;
    const int64_t num_planned = std::count_if(decodes.begin(), decodes.end(),
                                              [&](SequenceId id) { return planned.contains(id); });
    ASSERT_LE(num_planned, share + 1);  // one may have been admitted meanwhile
    ASSERT_GE(plan.num_decodes, std::min<int64_t>(share, static_cast<int64_t>(decodes.size())));
  }

  void check_first_rank(const std::set<SequenceId>& planned) {
    if (live_.empty()) return;
    SequenceId first = live_.begin()->first;
    for (const auto& [id, live] : live_) {
      if (rank(id) < rank(first)) first = id;
    }
    const Live& live = *live_.at(first);
    const bool can_run = live.is_known() || (is_running(first) && config_.num_stages == 1);
    ASSERT_TRUE(planned.contains(first) || !live.may_go_on() || !can_run) << first << " must run";
    reached_.num_overtaken += first != live_.begin()->first;
  }

  void check_started(const StepPlan& plan) {
    for (const StartedSequence& started : plan.started) {
      Live& live = *live_.at(started.id);
      ASSERT_FALSE(live.has_started);
      live.has_started = true;
      ASSERT_LT(started.num_cached, static_cast<int64_t>(live.num_prompt_tokens));
      ASSERT_TRUE(started.num_cached == 0 || (!live.is_scored && config_.has_prefix_caching));
      reached_.num_hits += started.num_cached > 0;
    }
  }

  // Every page is free, cached, or referenced by as many page tables as it says; of equal priority
  // no one runs that is younger than one who waits.
  void check_state() {
    ASSERT_EQ(scheduler_.num_running() + scheduler_.num_waiting(),
              static_cast<int64_t>(live_.size()));
    const PageAllocator& pages = scheduler_.pages();
    std::vector<int64_t> num_references(static_cast<size_t>(config_.num_pages), 0);
    std::map<int64_t, SequenceId> youngest_running, oldest_waiting;
    for (const auto& [id, live] : live_) {
      for (const int32_t page : scheduler_.page_table(id)) {
        ++num_references.at(static_cast<size_t>(page));
      }
      if (is_running(id)) youngest_running[rank(id).first] = id;
      if (!is_running(id)) oldest_waiting.emplace(rank(id).first, id);
    }
    for (const auto& [priority, id] : oldest_waiting) {
      const auto running = youngest_running.find(priority);
      ASSERT_TRUE(running == youngest_running.end() || running->second < id) << id;
    }
    int64_t num_free = 0, num_cached = 0;
    std::set<uint64_t> numbers = {0};
    for (int32_t page = 0; page < config_.num_pages; ++page) {
      const int64_t count = num_references[static_cast<size_t>(page)];
      const bool is_kept = pages.prefixes().contains(page);
      ASSERT_EQ(pages.num_references(page), count) << "page " << page;
      ASSERT_TRUE(count <= 1 || is_kept) << "page " << page;
      num_free += count == 0;
      num_cached += count == 0 && is_kept;
      reached_.num_shared_pages += count > 1;
      if (is_kept) numbers.insert(pages.prefixes().number(page));
    }
    ASSERT_EQ(pages.num_free(), num_free);
    ASSERT_EQ(pages.num_cached(), num_cached);
    for (int32_t page = 0; page < config_.num_pages; ++page) {
      ASSERT_TRUE(numbers.contains(pages.prefixes().parent(page))) << "cannot be found: " << page;
    }
  }

  // A written page belongs to one sequence, as of the launch, and is not in the prefix cache.
  void check_written_pages(const ScheduledSequence& scheduled) {
    const int64_t num_after = scheduled.num_past + scheduled.num_rows;
    for (int64_t i = scheduled.num_past; i < num_after; ++i) {
      const int32_t page = scheduled.page_table[static_cast<size_t>(i / config_.page_tokens)];
      ASSERT_EQ(scheduler_.pages().num_references(page), 1) << "page " << page << " is written";
      ASSERT_FALSE(scheduler_.pages().prefixes().contains(page)) << page;
    }
  }

  uint64_t& slot(const Part& part, size_t position) {
    const auto page_tokens = static_cast<size_t>(config_.page_tokens);
    const auto page = static_cast<size_t>(part.page_table.at(position / page_tokens));
    return slots_[page * page_tokens + position % page_tokens];
  }

  // Writes the new positions, and reads all: they must be its own text.
  void compute(const Part& part) {
    Live& live = *part.live;
    ASSERT_LE(part.num_after, live.tokens.size()) << "an input that no step has given";
    for (size_t i = part.num_past; i < part.num_after; ++i) slot(part, i) = live.chains[i];
    for (size_t i = 0; i < part.num_after; ++i) {
      ASSERT_EQ(slot(part, i), live.chains[i])
          << "request " << part.id << " reads what is not its own at " << i;
    }
    if (!part.is_complete) return;
    ASSERT_EQ(part.num_after, live.tokens.size()) << "a token that was given before";
    if (!live.is_choice_deferred) live.append(next_token(live.chains.back()));
  }

  void finish(SequenceId id) {
    const Live& live = *live_.at(id);
    Live alone;
    alone.salt = live.salt;
    for (size_t i = 0; i < live.num_prompt_tokens; ++i) alone.append(live.tokens[i]);
    while (alone.tokens.size() < live.num_known) alone.append(next_token(alone.chains.back()));
    const std::vector<int32_t> known(live.tokens.begin(),
                                     live.tokens.begin() + static_cast<int64_t>(live.num_known));
    ASSERT_EQ(known, alone.tokens) << "request " << id << " depends on the batch";
    remove(id);
    ++reached_.num_finished;
  }

  std::mt19937_64 random_;
  SchedulerConfig config_;
  std::map<SequenceId, LivePtr> live_;
  std::deque<Step> steps_;  // in flight, the oldest first
  Scheduler scheduler_;
  ReachedCases& reached_;
  std::set<SequenceId> decoding_;    // running past their prefill, when the step was planned
  const size_t num_left_in_flight_;  // when the next step is planned
  const bool runs_at_launch_;        // else when the engine waits for it
  const bool has_limits_;            // on the prefill rows of a step
  std::optional<int64_t> limit_;     // of the step that was planned last
  std::vector<int32_t> texts_[3];
  std::vector<uint64_t> slots_;  // [num_pages, page_tokens]: the chain that was computed there
  SequenceId next_id_ = 1;
  int64_t now_ = 0;
};

TEST(SchedulerSimulation, EveryRequestEndsAsIfItWereAlone) {
  const SimulationOptions& options = simulation_options();
  ReachedCases reached;
  for (int64_t i = 0; i < options.num_seeds; ++i) {
    const uint64_t seed = options.first_seed + static_cast<uint64_t>(i);
    SCOPED_TRACE(str("--first-seed=", seed, " --seeds=1 --steps=", options.num_steps_of_seed()));
    Simulation simulation(seed, reached);
    simulation.run(options.num_steps_of_seed());
    if (HasFailure()) return;
  }
  // The simulation must reach the interesting cases in a run of the usual size or more.
  EXPECT_GE(reached.num_steps, options.num_steps_of_seed() * options.num_seeds);
  if (reached.num_steps < 100'000) return;
  for (const int64_t count :
       {reached.num_finished, reached.num_preemptions, reached.num_hits, reached.num_cancels,
        reached.num_expired, reached.num_overtaken, reached.num_shared_pages,
        reached.num_scored_rows, reached.num_dropped, reached.num_unknown_inputs,
        reached.num_preempted_unknown, reached.num_limited, reached.num_shared_steps,
        reached.num_shared_decodes, reached.num_deferred, reached.num_preempted_deferred}) {
    EXPECT_GT(count, 300);
  }
  RecordProperty("steps", std::to_string(reached.num_steps));
}

}  // namespace
}  // namespace halley
