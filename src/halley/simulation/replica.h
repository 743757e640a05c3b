// One engine on a device with a virtual clock: the real scheduler, planner and ledger, and steps
// that take as long as SimulatedEngine says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "halley/client/load/load_run.h"
#include "halley/engine/engine_plan.h"
#include "halley/engine/request_ledger.h"
#include "halley/engine/scheduler.h"
#include "halley/engine/step_planner.h"
#include "halley/simulation/simulated_engine.h"

namespace halley {

/// The virtual clocks begin at 0.
TimePoint virtual_time(double seconds);

struct SimulatedRequest {
  double arrival = 0;                     // seconds from the beginning
  int64_t input_len = 0, output_len = 0;  // tokens, at least 1
};

/// Bounds of what a simulation takes. Replicas share it, so that one bound holds for all.
struct SimulationLimits {
  int64_t num_requests = 1'000'000;
  int64_t num_output_tokens = 20'000'000;
  int64_t num_steps = 10'000'000;  // less than a quarter of an hour of one core
  double seconds = 500'000;        // of virtual time
};

class SimulationBudget {
 public:
  explicit SimulationBudget(const SimulationLimits& limits) : limits_(limits) {}

  /// Throws InputError when there are no more steps, or where a step ends too late.
  void take_step(double end_seconds);

 private:
  SimulationLimits limits_;
  int64_t num_steps_ = 0;
};

struct ReplicaStats {
  int64_t num_steps = 0, num_preemptions = 0;
  double busy_seconds = 0;   // of its device
  double peak_kv_usage = 0;  // part of the pages of the KV cache
  PrecisionStats precision;
};

/// A device works on one step at a time, and the host plans the next one as soon as a step has
/// begun, as Engine does with StepRunner::kNumInFlightMax steps in flight: what a step computes is
/// known at its end, and what arrived while the host waited for that end comes into the step after
/// the next. The host itself takes no time; that of a real one is hidden behind the device's.
class Replica {
 public:
  /// All references must outlive this object; request i fills outcomes[i]. Throws InputError as
  /// StepPlanner.
  Replica(const SimulatedEngine& engine, SimulationBudget& budget,
          std::vector<LoadOutcome>& outcomes);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  /// A request that arrives now; everything before its arrival has been run.
  void submit(size_t index, const SimulatedRequest& request);

  /// Runs everything that happens before `time`. Throws InputError where the budget is used up.
  void run_until(TimePoint time);

  /// Prompt tokens of requests without a first token.
  int64_t num_waiting_tokens() const { return num_waiting_tokens_; }
  int64_t num_live() const { return static_cast<int64_t>(arrivals_.size() + live_.size()); }
  ReplicaStats stats() const;

 private:
  struct Arrival {
    size_t index = 0;
    TimePoint time;
    int64_t num_prompt_tokens = 0, max_tokens = 0;
  };
  struct Live {
    PrecisionDemand demand;
    int64_t num_prompt_tokens = 0;
    int64_t num_left = 0;  // output tokens to come
  };
  struct Flight {
    size_t level = 0;
    TimePoint end;
    std::vector<SequenceId> chosen;  // sequences that get a token
  };
  using LiveMap = std::unordered_map<SequenceId, Live>;

  void warm_up_predictor();
  void take_arrivals();
  std::string why_rejected(const Arrival& arrival) const;
  void step();
  void note_plan(const StepPlan& plan);
  void launch(const PlannedStep& step);
  void finish_step();
  void deliver_token(LiveMap::iterator it, size_t level);
  void note_event(LoadOutcome& outcome, const Live& live, size_t level) const;

  const SimulatedEngine& engine_;
  SimulationBudget& budget_;
  std::vector<LoadOutcome>& outcomes_;
  RequestLedger ledger_;
  Scheduler scheduler_;
  LiveMap live_;
  StepPlanner planner_;
  std::deque<Arrival> arrivals_;  // that the host has not seen
  std::deque<Flight> in_flight_;  // the oldest first
  TimePoint now_ = {};            // of the host
  bool is_waiting_ = false;       // for the oldest step in flight
  int64_t num_waiting_tokens_ = 0;
  ReplicaStats stats_;
};

}  // namespace halley
