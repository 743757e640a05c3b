#include "halley/simulation/replica.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/warm_up.h"
#include "halley/simulation/simulated_runner.h"

namespace halley {
namespace {

// Plans in a row without a sequence, while requests live and no step is in flight. The planner lets
// pinned sequences go first after one of them.
constexpr int kEmptyPlansMax = 3;

double seconds_of(TimePoint time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace

TimePoint virtual_time(double seconds) {
  return TimePoint(
      std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds)));
}

void SimulationBudget::take_step(double end_seconds) {
  if (++num_steps_ > limits_.num_steps) {
    throw InputError(str("simulation: expected at most ", limits_.num_steps,
                         " steps, got more. Choose a shorter window of the load, shorter requests "
                         "or a larger --itl-target."));
  }
  if (!(end_seconds <= limits_.seconds)) {
    throw InputError(str("simulation: expected an end within ", limits_.seconds,
                         " seconds, got a later one. Choose a shorter window of the load or more "
                         "GPUs."));
  }
}

Replica::Replica(const SimulatedEngine& engine, SimulationBudget& budget,
                 std::vector<LoadOutcome>& outcomes)
    : engine_(engine),
      budget_(budget),
      outcomes_(outcomes),
      ledger_(engine.plan.config),
      scheduler_(scheduler_config(engine.plan), {}),
      planner_(scheduler_,
               {.itl_target = engine.plan.config.itl_target,
                .levels = engine.choices(),
                .mode = engine.plan.config.precision},
               [this](SequenceId id) -> const PrecisionDemand& { return live_.at(id).demand; }) {
  if (engine.plan.config.precision == PrecisionMode::kAuto) warm_up_predictor();
}

// The engine's own warm-up, on a device that computes nothing.
void Replica::warm_up_predictor() {
  SimulatedRunner runner(engine_);
  const EngineConfig& config = engine_.plan.config;
  warm_up(
      runner, KvCacheView{},
      {.num_pages = engine_.plan.num_pages,
       .page_tokens = config.page_tokens,
       .num_sequences = config.max_num_seqs,
       .num_prefill_rows = config.max_num_batched_tokens,
       .has_graphs = true},
      [&] { return runner.now(); }, planner_);
}

void Replica::submit(size_t index, const SimulatedRequest& request) {
  arrivals_.push_back({.index = index,
                       .time = virtual_time(request.arrival),
                       .num_prompt_tokens = request.input_len,
                       .max_tokens = request.output_len});
  num_waiting_tokens_ += request.input_len;
  outcomes_[index].start = request.arrival;
}

void Replica::run_until(TimePoint time) {
  while (true) {
    if (is_waiting_) {
      if (in_flight_.front().end >= time) return;
      now_ = std::max(now_, in_flight_.front().end);
      is_waiting_ = false;
      finish_step();
      continue;
    }
    if (in_flight_.empty() && live_.empty()) {
      if (arrivals_.empty() || arrivals_.front().time >= time) return;
      now_ = std::max(now_, arrivals_.front().time);
    }
    step();
  }
}

std::string Replica::why_rejected(const Arrival& arrival) const {
  const int64_t max_model_len = engine_.plan.config.max_model_len;
  // As a server: the whole answer must fit.
  if (arrival.num_prompt_tokens > max_model_len - arrival.max_tokens) {
    return str("max_model_len: expected at most ", max_model_len, " tokens, got a prompt of ",
               arrival.num_prompt_tokens, " and ", arrival.max_tokens, " to generate");
  }
  return ledger_.why_rejected(arrival.num_prompt_tokens).message;
}

void Replica::take_arrivals() {
  const EngineConfig& config = engine_.plan.config;
  for (; !arrivals_.empty() && arrivals_.front().time <= now_; arrivals_.pop_front()) {
    const Arrival& arrival = arrivals_.front();
    LoadOutcome& outcome = outcomes_[arrival.index];
    outcome.error = why_rejected(arrival);
    if (!outcome.error.empty()) {
      num_waiting_tokens_ -= arrival.num_prompt_tokens;
      continue;
    }
    ledger_.add(arrival.index, arrival.num_prompt_tokens);
    live_.emplace(
        arrival.index,
        Live{.demand = {.mode = config.precision, .slo = config.slo, .submitted = arrival.time},
             .num_prompt_tokens = arrival.num_prompt_tokens,
             .num_left = arrival.max_tokens});
    scheduler_.add({.id = arrival.index,
                    .num_prompt_tokens = arrival.num_prompt_tokens,
                    .max_tokens = arrival.max_tokens,
                    .is_pinned = config.precision == PrecisionMode::kFull});
  }
}

// As Engine::Impl: commands, a plan, its launch, and a wait where the pipeline is full or nothing
// else can be done.
void Replica::step() {
  take_arrivals();
  int num_empty_plans = 0;
  while (true) {
    const PlannedStep planned = planner_.plan(now_);
    note_plan(planned.plan);
    if (!planned.plan.sequences.empty()) {
      launch(planned);
      is_waiting_ = in_flight_.size() == StepRunner::kNumInFlightMax;
      return;
    }
    is_waiting_ = !in_flight_.empty();
    if (is_waiting_ || live_.empty()) return;
    HALLEY_CHECK(++num_empty_plans < kEmptyPlansMax, live_.size());
  }
}

void Replica::note_plan(const StepPlan& plan) {
  stats_.num_preemptions += static_cast<int64_t>(plan.preempted.size());
  for (const StartedSequence& started : plan.started) ledger_.start(started.id);
  const auto num_pages = static_cast<double>(scheduler_.pages().num_pages());
  const auto num_used = num_pages - static_cast<double>(scheduler_.pages().num_free());
  stats_.peak_kv_usage = std::max(stats_.peak_kv_usage, num_used / num_pages);
}

void Replica::launch(const PlannedStep& step) {
  Flight flight = {.level = step.decision.level, .end = {}, .chosen = {}};
  std::vector<SequenceStep> sequences;
  for (const ScheduledSequence& scheduled : step.plan.sequences) {
    sequences.push_back({.num_past = scheduled.num_past, .num_new = scheduled.num_rows});
    if (scheduled.is_complete) flight.chosen.push_back(scheduled.id);
  }
  const double seconds =
      engine_.step_seconds(flight.level, sequences, static_cast<int64_t>(flight.chosen.size()));
  const TimePoint begin = in_flight_.empty() ? now_ : std::max(now_, in_flight_.back().end);
  budget_.take_step(seconds_of(begin) + seconds);
  flight.end = begin + std::max(virtual_time(seconds).time_since_epoch(), TimePoint::duration(1));
  in_flight_.push_back(std::move(flight));
  scheduler_.launched(step.plan);
  planner_.note_launch(step, now_);
  ++stats_.num_steps;
  stats_.busy_seconds += seconds;
}

void Replica::finish_step() {
  const Flight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  planner_.note_end(now_);
  for (const SequenceId id : flight.chosen) {
    const auto it = live_.find(id);
    HALLEY_CHECK(it != live_.end(), id);  // its last token ends it, and no other is launched
    deliver_token(it, flight.level);
  }
}

void Replica::deliver_token(LiveMap::iterator it, size_t level) {
  const SequenceId id = it->first;
  Live& live = it->second;
  LoadOutcome& outcome = outcomes_[id];
  note_event(outcome, live, level);
  if (!live.demand.last_token) num_waiting_tokens_ -= live.num_prompt_tokens;
  live.demand.note_token(now_);
  planner_.precision().note_token(level);
  if (--live.num_left > 0) {
    scheduler_.note_token(id);
    return;
  }
  outcome.num_prompt_tokens = live.num_prompt_tokens;
  outcome.has_usage = true;
  scheduler_.remove(id);
  ledger_.end(id);
  live_.erase(it);
}

// An event for each token, as a server streams them.
void Replica::note_event(LoadOutcome& outcome, const Live& live, size_t level) const {
  const auto seconds_since = [&](TimePoint time) {
    return std::chrono::duration<double>(now_ - time).count();
  };
  if (live.demand.last_token) {
    outcome.inter_token_latencies.push_back(seconds_since(*live.demand.last_token));
  } else {
    outcome.time_to_first_token = seconds_since(live.demand.submitted);
  }
  outcome.latency = seconds_since(live.demand.submitted);
  const int64_t event = outcome.num_output_tokens++;
  if (engine_.levels.size() < 2) return;
  if (outcome.precisions.empty()) {
    for (const PrecisionLevel& other : engine_.levels) {
      outcome.precisions.emplace_back(name_of(other.precision));
    }
  }
  ++outcome.precision_tokens[outcome.precisions[level]];
  outcome.event_tokens.push_back(
      {.event = event, .precision = static_cast<int64_t>(level), .count = 1});
}

ReplicaStats Replica::stats() const {
  ReplicaStats stats = stats_;
  stats.precision = planner_.precision().stats();
  return stats;
}

}  // namespace halley
