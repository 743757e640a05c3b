// The parts of an engine: what every thread sees, and what only the engine's thread does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "halley/engine/constrained_requests.h"
#include "halley/engine/dry_breakers.h"
#include "halley/engine/engine.h"
#include "halley/engine/engine_plan.h"
#include "halley/engine/kv_cache.h"
#include "halley/engine/live_request.h"
#include "halley/engine/mask_job.h"
#include "halley/engine/request_ledger.h"
#include "halley/engine/scheduler.h"
#include "halley/engine/step_pipeline.h"
#include "halley/engine/step_planner.h"

namespace halley {

// The members form two groups: `mutex_` guards the first, which every thread sees; only the
// engine's thread touches the second. Callbacks run without the lock.
class Engine::Impl {
 public:
  struct Parts {
    std::unique_ptr<CausalLm> model;
    std::shared_ptr<const Tokenizer> tokenizer;
    std::vector<int32_t> eos_token_ids;
    EnginePlan plan;
    EngineClock clock;
    std::unique_ptr<MaskExecutor> masks;  // null: threads
  };
  explicit Impl(Parts parts);

  /// Ends the thread. To be called once, before the destructor, as callbacks may use this
  /// meanwhile.
  void stop();
  SubmitResult submit(GenerateRequest request, RequestId id, TokenCallback on_token);
  void cancel(RequestId id);
  SubmitResult would_admit(int64_t num_prompt_tokens) const;
  void drain(TimePoint limit);
  void wait_until_idle() const;
  EngineStats stats() const;
  const EngineConfig& config() const { return parts_.plan.config; }
  int64_t hidden_size() const { return model_.shape().hidden_size; }

 private:
  static constexpr const char* kIsEnding = "engine: it is ending";

  using LivePtr = std::unique_ptr<LiveRequest>;
  // A submit; a cancel if `live` is null.
  struct Command {
    RequestId id = 0;
    LivePtr live;
  };

  SubmitResult why_invalid(const GenerateRequest& request, const TokenCallback& on_token) const;

  void run();
  bool take_commands();
  void execute_commands();
  void queue(LivePtr live);
  void end_expired();
  void step();
  void hold_for_masks();
  void wait_for_mask();
  void settle_constrained();
  void launch_choices();
  void launch_step(const PlannedStep& step);
  void note_switches(int64_t num_before);
  void note_plan(const StepPlan& plan);
  void finish_call();
  bool score_prompt(LiveRequest& live, const SequenceResult& result);
  void take_pooled(LiveRequest& live, const SequenceResult& result);
  void take_token(LiveRequest& live, const ChosenToken& chosen);
  void deliver_token(LiveRequest& live, const ChosenToken& chosen, OutputState state);
  std::unique_ptr<MaskExecutor> make_mask_threads();
  std::shared_ptr<const DryBreakers> dry_breakers_of(const GenerateRequest& request);
  PrecisionDemand demand_of(const GenerateRequest& request) const;
  void note_token(LiveRequest& live, TokenEvent& event);
  void end_by(SequenceId id, TokenEvent event);
  void end_request(SequenceId id, FinishReason reason, const std::string& error);
  void end_all(FinishReason reason, const std::string& error, const std::string& stop_message);
  void count_waiting();
  void publish();
  void publish_tokens();

  Parts parts_;
  CausalLm& model_;
  const uint64_t seed_;  // base of the seeds of requests without one
  std::atomic<SequenceId> num_submits_ = 0;
  DryBreakerCache dry_breakers_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  mutable std::condition_variable idle_;
  std::vector<Command> commands_;  // in the order of the calls
  RequestLedger ledger_;
  EngineStats stats_;
  std::optional<TimePoint> drain_limit_;
  bool is_ending_ = false;
  bool is_idle_ = false;   // the thread waits for commands, or has ended
  bool has_mask_ = false;  // one was done since the thread last waited for one

  Scheduler scheduler_;
  StepPlanner planner_;
  KvCache cache_;
  StepPipeline pipeline_;
  const std::unique_ptr<MaskExecutor> masks_;
  ConstrainedRequests constrained_;
  std::map<SequenceId, LivePtr> requests_;
  std::unordered_map<RequestId, SequenceId> sequence_ids_;  // for all requests_
  std::set<std::pair<TimePoint, SequenceId>> deadlines_;
  std::vector<Command> taken_;  // commands to execute, from next_taken_ on
  size_t next_taken_ = 0;
  std::vector<LiveRequest*> lives_;  // of the step that is launched, in the order of its plan
  EngineStats totals_;               // the totals of stats_
  TimePoint now_;                    // before a step is planned, or after one that was waited for
  std::optional<TimePoint> limit_;   // of this step: drain_limit_
  SamplerScratch scratch_;

  std::thread thread_;  // the last member: it uses all others
};

}  // namespace halley
