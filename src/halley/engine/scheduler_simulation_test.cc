// A simulation of the scheduler under random load: arrivals, priorities, prompts that begin alike,
// cancels, deadlines by a clock of its own, few pages, and a model that sees nothing but the pages.
// What must always hold is checked after every step.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/engine/scheduler.h"
#include "halley/engine/simulation_options.h"

namespace halley {
namespace {

using testing::Test;

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}

// What a position of the cache holds: the token there and all before it, and whose they are.
uint64_t chained(uint64_t before, int32_t token) {
  return mix(before, static_cast<uint64_t>(token) + 1);
}
uint64_t chain_begin(const std::string& salt) { return mix(77, salt.empty() ? 0 : salt[0]); }

// Few tokens, so that sequences that begin alike often go on alike.
int32_t next_token(uint64_t chain) { return static_cast<int32_t>(chain >> 20 & 3); }

/// How often the simulation got to what it is for.
struct Reached {
  int64_t num_steps = 0, num_finished = 0, num_preemptions = 0, num_hits = 0, num_cancels = 0;
  int64_t num_expired = 0, num_overtaken = 0, num_shared_pages = 0, num_scored_rows = 0;
};

class Simulation {
 public:
  Simulation(uint64_t seed, Reached& reached)
      : random_(seed),
        config_(random_config()),
        scheduler_(
            config_,
            [this](SequenceId id) -> std::span<const int32_t> { return live_.at(id).tokens; }),
        reached_(reached) {
    slots_.assign(static_cast<size_t>(config_.num_pages * config_.page_tokens), 0);
    for (std::vector<int32_t>& text : texts_) {
      for (int i = 0; i < 40; ++i) text.push_back(static_cast<int32_t>(pick(0, 3)));
    }
  }

  void run(int64_t num_steps) {
    const int64_t load = pick(2, 12);  // how many live at one time, about
    for (int64_t i = 0; i < num_steps && !Test::HasFatalFailure(); ++i) {
      if (static_cast<int64_t>(live_.size()) < load || pick(0, 20) == 0) submit();
      if (pick(0, 40) == 0) cancel_any();
      step();
    }
    int64_t num_steps_left = 100'000;  // far more than those that live can need
    while (!live_.empty() && !Test::HasFatalFailure()) {
      ASSERT_GT(--num_steps_left, 0) << "starvation";
      step();
    }
  }

 private:
  struct Live {
    int64_t priority = 0;
    std::string salt;
    std::vector<int32_t> tokens;
    std::vector<uint64_t> chains;  // of each token
    size_t num_prompt_tokens = 0;
    size_t num_tokens_max = 0;
    std::optional<int64_t> deadline;
    bool is_scored = false;
    bool has_started = false;

    void append(int32_t token) {
      chains.push_back(chained(chains.empty() ? chain_begin(salt) : chains.back(), token));
      tokens.push_back(token);
    }
  };

  int64_t pick(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(random_() % static_cast<uint64_t>(max - min + 1));
  }

  SchedulerConfig random_config() {
    const int64_t max_num_seqs = pick(1, 8);
    return {.num_pages = pick(2, 30),
            .page_tokens = pick(1, 8),
            .max_model_len = pick(2, 60),
            .max_num_seqs = max_num_seqs,
            .max_num_batched_tokens = max_num_seqs + pick(0, 20),
            .max_num_prompt_logits = pick(1, 10),
            .policy = pick(0, 2) == 0 ? SchedulingPolicy::kFcfs : SchedulingPolicy::kPriority,
            .has_prefix_caching = pick(0, 4) != 0};
  }

  // A part of a text that others begin with too, and some tokens of its own.
  void append_prompt(Live& live) {
    const std::vector<int32_t>& text = texts_[static_cast<size_t>(pick(0, 2))];
    const int64_t num_same = pick(0, 3) != 0 ? pick(0, 30) : 0;
    for (int64_t i = 0; i < num_same; ++i) live.append(text[static_cast<size_t>(i)]);
    const int64_t num_own = pick(num_same == 0 ? 1 : 0, 10);
    for (int64_t i = 0; i < num_own; ++i) live.append(static_cast<int32_t>(pick(0, 3)));
  }

  void submit() {
    const SequenceId id = next_id_++;
    Live live;
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
    live.is_scored = pick(0, 9) == 0;
    if (pick(0, 5) == 0) live.deadline = now_ + pick(0, 300);
    scheduler_.add({.id = id,
                    .num_prompt_tokens = num_prompt_tokens,
                    .max_tokens = max_tokens,
                    .priority = live.priority,
                    .cache_salt = live.salt,
                    .needs_prompt_logits = live.is_scored});
    live_.emplace(id, std::move(live));
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
      if (live.deadline && *live.deadline <= now_) expired.push_back(id);
    }
    for (const SequenceId id : expired) remove(id);
    reached_.num_expired += static_cast<int64_t>(expired.size());
  }

  bool is_running(SequenceId id) const { return !scheduler_.page_table(id).empty(); }

  // Priority, then arrival.
  std::pair<int64_t, SequenceId> rank(SequenceId id) const {
    return {config_.policy == SchedulingPolicy::kPriority ? live_.at(id).priority : 0, id};
  }

  void step() {
    end_expired();
    std::set<SequenceId> decodes;
    for (const auto& [id, live] : live_) {
      if (is_running(id) && num_computed_[id] + 1 == live.tokens.size()) decodes.insert(id);
    }
    const StepPlan plan = scheduler_.schedule();
    ++reached_.num_steps;
    for (const SequenceId id : plan.preempted) {
      decodes.erase(id);
      num_computed_[id] = 0;
    }
    reached_.num_preemptions += static_cast<int64_t>(plan.preempted.size());
    check_plan(plan, decodes);
    if (Test::HasFatalFailure()) return;
    check_started(plan);
    std::vector<std::pair<SequenceId, int32_t>> chosen;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      compute(scheduled);
      if (Test::HasFatalFailure()) return;
      if (scheduled.is_complete) {
        const uint64_t last = slot(scheduled, scheduled.num_past + scheduled.num_rows - 1);
        chosen.emplace_back(scheduled.id, next_token(last));
      }
    }
    if (pick(0, 100) == 0) cancel_any();
    scheduler_.launched(plan);
    for (const auto& [id, token] : chosen) append_token(id, token);
    check_state();
  }

  void append_token(SequenceId id, int32_t token) {
    const auto place = live_.find(id);
    if (place == live_.end()) return;
    place->second.append(token);
    scheduler_.note_token(id);
    if (place->second.tokens.size() == place->second.num_tokens_max) finish(id);
  }

  void check_plan(const StepPlan& plan, const std::set<SequenceId>& decodes) {
    ASSERT_EQ(plan.sequences.empty(), live_.empty());
    ASSERT_LE(plan.num_rows, config_.max_num_batched_tokens);
    ASSERT_LE(scheduler_.num_running(), config_.max_num_seqs);
    int64_t num_rows = 0, num_scored_rows = 0;
    std::set<SequenceId> planned;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      ASSERT_TRUE(planned.insert(scheduled.id).second);
      const Live& live = live_.at(scheduled.id);
      const int64_t num_after = scheduled.num_past + scheduled.num_rows;
      ASSERT_GE(scheduled.num_rows, 1);
      ASSERT_EQ(scheduled.is_complete, num_after == static_cast<int64_t>(live.tokens.size()));
      ASSERT_GE(static_cast<int64_t>(scheduled.page_table.size()) * config_.page_tokens, num_after);
      num_rows += scheduled.num_rows;
      if (live.is_scored && live.tokens.size() == live.num_prompt_tokens) {
        num_scored_rows += scheduled.num_rows - (scheduled.is_complete ? 1 : 0);
      }
    }
    ASSERT_EQ(num_rows, plan.num_rows);
    ASSERT_LE(num_scored_rows, config_.max_num_prompt_logits);
    reached_.num_scored_rows += num_scored_rows;
    for (const SequenceId id : decodes) ASSERT_TRUE(planned.contains(id)) << "decode " << id;
    check_first_rank(planned);
  }

  void check_first_rank(const std::set<SequenceId>& planned) {
    if (live_.empty()) return;
    SequenceId first = live_.begin()->first;
    for (const auto& [id, live] : live_) {
      if (rank(id) < rank(first)) first = id;
    }
    ASSERT_TRUE(planned.contains(first)) << "the first rank must advance";
    reached_.num_overtaken += first != live_.begin()->first;
  }

  void check_started(const StepPlan& plan) {
    for (const StartedSequence& started : plan.started) {
      Live& live = live_.at(started.id);
      ASSERT_FALSE(live.has_started);
      live.has_started = true;
      ASSERT_LT(started.num_cached, static_cast<int64_t>(live.tokens.size()));
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

  uint64_t& slot(const ScheduledSequence& scheduled, int64_t position) {
    const int32_t page = scheduled.page_table[static_cast<size_t>(position / config_.page_tokens)];
    return slots_[static_cast<size_t>(page * config_.page_tokens + position % config_.page_tokens)];
  }

  // Writes the new positions, into pages of its own, and reads all: they must be its own text.
  void compute(const ScheduledSequence& scheduled) {
    const Live& live = live_.at(scheduled.id);
    const int64_t num_after = scheduled.num_past + scheduled.num_rows;
    for (int64_t i = scheduled.num_past; i < num_after; ++i) {
      const int32_t page = scheduled.page_table[static_cast<size_t>(i / config_.page_tokens)];
      ASSERT_EQ(scheduler_.pages().num_references(page), 1) << "page " << page << " is written";
      ASSERT_FALSE(scheduler_.pages().prefixes().contains(page)) << page;
      slot(scheduled, i) = live.chains[static_cast<size_t>(i)];
    }
    for (int64_t i = 0; i < num_after; ++i) {
      ASSERT_EQ(slot(scheduled, i), live.chains[static_cast<size_t>(i)])
          << "request " << scheduled.id << " reads what is not its own at " << i;
    }
    num_computed_[scheduled.id] = static_cast<size_t>(num_after);
  }

  void finish(SequenceId id) {
    const Live& live = live_.at(id);
    Live alone;
    alone.salt = live.salt;
    for (size_t i = 0; i < live.num_prompt_tokens; ++i) alone.append(live.tokens[i]);
    while (alone.tokens.size() < live.num_tokens_max) alone.append(next_token(alone.chains.back()));
    ASSERT_EQ(live.tokens, alone.tokens) << "request " << id << " depends on the batch";
    remove(id);
    ++reached_.num_finished;
  }

  std::mt19937_64 random_;
  SchedulerConfig config_;
  std::map<SequenceId, Live> live_;
  std::map<SequenceId, size_t> num_computed_;  // of those that ran, as of their last step
  Scheduler scheduler_;
  Reached& reached_;
  std::vector<int32_t> texts_[3];
  std::vector<uint64_t> slots_;  // [num_pages, page_tokens]: the chain that was computed there
  SequenceId next_id_ = 1;
  int64_t now_ = 0;
};

TEST(SchedulerSimulation, EveryRequestEndsAsIfItWereAlone) {
  const SimulationOptions& options = simulation_options();
  Reached reached;
  for (int64_t i = 0; i < options.num_seeds; ++i) {
    const uint64_t seed = options.first_seed + static_cast<uint64_t>(i);
    SCOPED_TRACE(str("--first-seed=", seed, " --seeds=1 --steps=", options.num_steps_of_seed()));
    Simulation simulation(seed, reached);
    simulation.run(options.num_steps_of_seed());
    if (HasFailure()) return;
  }
  // That the simulation reaches what it is for, in a run of the usual size or more.
  EXPECT_GE(reached.num_steps, options.num_steps_of_seed() * options.num_seeds);
  if (reached.num_steps < 100'000) return;
  for (const int64_t count : {reached.num_finished, reached.num_preemptions, reached.num_hits,
                              reached.num_cancels, reached.num_expired, reached.num_overtaken,
                              reached.num_shared_pages, reached.num_scored_rows}) {
    EXPECT_GT(count, 300);
  }
  RecordProperty("steps", std::to_string(reached.num_steps));
  RecordProperty("finished", std::to_string(reached.num_finished));
  RecordProperty("preemptions", std::to_string(reached.num_preemptions));
  RecordProperty("hits", std::to_string(reached.num_hits));
}

}  // namespace
}  // namespace halley
