#include "halley/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/philox.h"
#include "halley/engine/available_memory.h"
#include "halley/engine/engine_plan.h"
#include "halley/engine/kv_cache.h"
#include "halley/engine/live_request.h"
#include "halley/engine/prefill_limit.h"
#include "halley/engine/request_ledger.h"
#include "halley/engine/scheduler.h"
#include "halley/engine/step_pipeline.h"

namespace halley {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

const char* const kIsEnding = "engine: it is ending";
const char* const kPromptLogitsError =
    "prompt logits: expected finite numbers, got NaN or infinity. The weights may be damaged, or "
    "the model overflows its number format.";
const char* const kIsDraining = "engine: it is draining and takes no requests any more";

void check_eos_token_ids(const std::vector<int32_t>& ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      throw InputError(str("eos_token_ids: expected token ids of 0 to ", vocab_size - 1, ", got ",
                           id, ". Check generation_config.json."));
    }
  }
}

// The model reserves its own memory before the KV cache takes the rest.
EnginePlan prepare_engine(CausalLm& model, const EngineConfig& config) {
  const ModelShape& shape = model.shape();
  const EngineConfig full = with_defaults(config, shape, model.device_name() == "cpu");
  const std::optional<int64_t> device_bytes = model.prepare(step_limits(full, shape));
  return plan_engine(
      full, shape,
      device_bytes ? device_kv_room(*device_bytes) : host_kv_room(available_memory_bytes()));
}

}  // namespace

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

 private:
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
  void note_plan(const StepPlan& plan);
  void finish_step();
  bool score_prompt(LiveRequest& live, const SequenceResult& result);
  void deliver_token(LiveRequest& live, const SequenceResult& result);
  void deliver(SequenceId id, TokenEvent event);
  void end_request(SequenceId id, FinishReason reason, const std::string& error);
  void end_all(FinishReason reason, const std::string& error, const std::string& stop_message);
  void count_waiting();
  void publish();

  const Parts parts_;
  CausalLm& model_;
  const bool model_chooses_;
  const uint64_t seed_;  // base of the seeds of requests without one
  std::atomic<SequenceId> num_submits_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  mutable std::condition_variable idle_;
  std::vector<Command> commands_;  // in the order of the calls
  RequestLedger ledger_;
  EngineStats stats_;
  std::optional<TimePoint> drain_limit_;
  bool is_ending_ = false;
  bool is_idle_ = false;  // the thread waits for commands, or has ended

  Scheduler scheduler_;
  PrefillLimit prefill_limit_;
  KvCache cache_;
  StepPipeline pipeline_;
  std::map<SequenceId, LivePtr> requests_;
  std::unordered_map<RequestId, SequenceId> sequence_ids_;  // for all requests_
  std::set<std::pair<TimePoint, SequenceId>> deadlines_;
  std::vector<Command> taken_;  // commands to execute, from next_taken_ on
  size_t next_taken_ = 0;
  EngineStats totals_;              // the totals of stats_
  TimePoint now_;                   // before a step is planned, or after one that was waited for
  std::optional<TimePoint> limit_;  // of this step: drain_limit_
  SamplerScratch scratch_;

  std::thread thread_;  // the last member: it uses all others
};

Engine::Impl::Impl(Parts parts)
    : parts_(std::move(parts)),
      model_(*parts_.model),
      model_chooses_(model_.step_runner() != nullptr),
      seed_(random_seed()),
      ledger_(parts_.plan.config),
      scheduler_(scheduler_config(parts_.plan),
                 [this](SequenceId id) { return requests_.at(id)->request.tokens(); }),
      prefill_limit_(parts_.plan.config.itl_target),
      cache_(parts_.plan.layout, model_, parts_.plan.num_pages),
      pipeline_(model_, cache_, parts_.plan.config.max_num_seqs) {
  publish();
  thread_ = std::thread([this] { run(); });
}

void Engine::Impl::stop() {
  HALLEY_CHECK(std::this_thread::get_id() != thread_.get_id());  // ended by its own callback
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    ledger_.stop(kIsEnding);
  }
  wake_.notify_one();
  thread_.join();
}

SubmitResult Engine::Impl::why_invalid(const GenerateRequest& request,
                                       const TokenCallback& on_token) const {
  try {
    check_request(request, model_.shape().vocab_size, parts_.tokenizer != nullptr);
  } catch (const InputError& error) {
    return {Submit::kInvalid, error.what()};
  }
  if (!on_token) return {Submit::kInvalid, "on_token: expected a callback, got none"};
  return {};
}

SubmitResult Engine::Impl::submit(GenerateRequest request, RequestId id, TokenCallback on_token) {
  SubmitResult rejection = why_invalid(request, on_token);
  if (rejection.status != Submit::kQueued) return rejection;
  const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
  const SequenceId sequence_id = num_submits_++;
  const RequestContext context = {.tokenizer = parts_.tokenizer.get(),
                                  .eos_token_ids = parts_.eos_token_ids,
                                  .max_model_len = config().max_model_len,
                                  .seed = random_bits(seed_, sequence_id),
                                  .model_chooses = model_chooses_};
  const LiveRequest::Ids ids = {.request = id, .sequence = sequence_id};
  auto live = std::make_unique<LiveRequest>(std::move(request), ids, std::move(on_token), context,
                                            parts_.clock());
  {
    const std::lock_guard lock(mutex_);
    if (!ledger_.is_stopped() && ledger_.is_live(id)) {
      return {Submit::kInvalid, str("id: expected one that is not in use, got ", id)};
    }
    rejection = ledger_.why_rejected(num_prompt_tokens);
    if (rejection.status != Submit::kQueued) return rejection;
    ledger_.add(id, num_prompt_tokens);
    commands_.push_back({id, std::move(live)});
    count_waiting();
  }
  wake_.notify_one();
  return {};
}

void Engine::Impl::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    if (!ledger_.is_live(id)) return;
    commands_.push_back({id, nullptr});
  }
  wake_.notify_one();
}

SubmitResult Engine::Impl::would_admit(int64_t num_prompt_tokens) const {
  const std::lock_guard lock(mutex_);
  return ledger_.why_rejected(std::max(num_prompt_tokens, int64_t{1}));
}

void Engine::Impl::drain(TimePoint limit) {
  const std::lock_guard lock(mutex_);
  if (!ledger_.is_stopped()) ledger_.stop(kIsDraining);
  drain_limit_ = limit;  // the thread checks it before each step; without requests it sleeps
}

void Engine::Impl::wait_until_idle() const {
  HALLEY_CHECK(std::this_thread::get_id() != thread_.get_id());
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return is_idle_ && ledger_.num_live() == 0; });
}

EngineStats Engine::Impl::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

// Copies the ledger's counts into the statistics, so that a submit shows at once. Called under the
// lock.
void Engine::Impl::count_waiting() {
  stats_.num_waiting = ledger_.num_live() - stats_.num_running;
  stats_.num_queued = ledger_.num_queued();
  stats_.num_queued_tokens = ledger_.num_queued_tokens();
}

// Called under the lock.
void Engine::Impl::publish() {
  stats_ = totals_;
  stats_.num_running = scheduler_.num_running();
  stats_.num_pages = scheduler_.pages().num_pages();
  stats_.num_free_pages = scheduler_.pages().num_free();
  stats_.num_cached_pages = scheduler_.pages().num_cached();
  stats_.num_prefix_queries = scheduler_.num_prefix_queries();
  stats_.num_prefix_hits = scheduler_.num_prefix_hits();
  stats_.itl_target_seconds = prefill_limit_.target_seconds();
  stats_.num_prefill_rows_max = prefill_limit_.num_rows_last();
  count_waiting();
}

// Any exception of the model ends all requests and the engine.
void Engine::Impl::run() {
  try {
    while (take_commands()) {
      execute_commands();
      end_expired();
      step();
    }
    end_all(FinishReason::kCancelled, "", kIsEnding);
  } catch (const std::exception& error) {
    end_all(FinishReason::kError, error.what(),
            str("engine: stopped after an error: ", error.what()));
  }
  pipeline_.abandon();
  {
    const std::lock_guard lock(mutex_);
    is_idle_ = true;
  }
  idle_.notify_all();
}

// Waits for commands if no request lives and no step is in flight. A live request keeps the thread
// stepping, so deadlines need no timer. Returns false if the engine ends.
bool Engine::Impl::take_commands() {
  std::unique_lock lock(mutex_);
  if (requests_.empty() && pipeline_.is_empty() && commands_.empty()) {
    is_idle_ = true;
    idle_.notify_all();
    wake_.wait(lock, [&] { return is_ending_ || !commands_.empty(); });
    is_idle_ = false;
  }
  if (is_ending_) return false;
  taken_ = std::exchange(commands_, {});
  next_taken_ = 0;
  limit_ = drain_limit_;
  return true;
}

void Engine::Impl::queue(LivePtr live) {
  const SequenceId id = live->sequence.id;
  if (live->deadline) deadlines_.emplace(*live->deadline, id);
  scheduler_.add(live->sequence);
  sequence_ids_.emplace(live->id, id);
  requests_.emplace(id, std::move(live));
}

void Engine::Impl::execute_commands() {
  now_ = parts_.clock();
  while (next_taken_ < taken_.size()) {
    Command command = std::move(taken_[next_taken_++]);
    if (command.live != nullptr) {
      queue(std::move(command.live));
      continue;
    }
    const auto it = sequence_ids_.find(command.id);
    if (it != sequence_ids_.end()) end_request(it->second, FinishReason::kCancelled, "");
  }
  taken_.clear();
  next_taken_ = 0;
}

void Engine::Impl::end_expired() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    end_request(deadlines_.begin()->second, FinishReason::kDeadline, "");
  }
  if (!limit_ || *limit_ > now_) return;
  while (!requests_.empty()) end_request(requests_.begin()->first, FinishReason::kCancelled, "");
}

// Keeps the pipeline full: a model that runs asynchronously gets its next step before the results
// of the last one are processed; any other model has one step at a time.
void Engine::Impl::step() {
  const StepPlan plan = scheduler_.schedule(
      [this](const PrefillOutlook& outlook) { return prefill_limit_.num_rows(outlook); });
  note_plan(plan);
  const bool has_step = !plan.sequences.empty();
  if (has_step) {
    pipeline_.launch(plan, [this](SequenceId id) -> LiveRequest& { return *requests_.at(id); });
    scheduler_.launched(plan);
    prefill_limit_.note_launch(plan, now_);
  }
  if (pipeline_.is_full() || (!has_step && !pipeline_.is_empty())) finish_step();
}

void Engine::Impl::note_plan(const StepPlan& plan) {
  if (!plan.sequences.empty()) {
    ++totals_.num_steps;
    totals_.step_sizes.add(plan.num_rows);
  }
  totals_.num_preemptions += static_cast<int64_t>(plan.preempted.size());
  for (const SequenceId id : plan.preempted) {
    LiveRequest& live = *requests_.at(id);
    live.timer.note_preemption();
    pipeline_.give_back_slot(live);
  }
  const std::lock_guard lock(mutex_);
  for (const StartedSequence& started : plan.started) {
    LiveRequest& live = *requests_.at(started.id);
    live.timer.start(now_, started.num_cached);
    ledger_.start(live.id);
  }
  publish();
}

void Engine::Impl::finish_step() {
  const std::span<const SequenceResult> results = pipeline_.wait();
  now_ = parts_.clock();
  prefill_limit_.note_end(now_);
  for (const SequenceResult& result : results) {
    const auto it = requests_.find(result.id);
    if (it == requests_.end()) continue;  // it has ended since the launch
    LiveRequest& live = *it->second;
    if (!score_prompt(live, result)) {
      end_request(result.id, FinishReason::kError, kPromptLogitsError);
    } else if (result.is_complete) {
      deliver_token(live, result);
    }
  }
}

bool Engine::Impl::score_prompt(LiveRequest& live, const SequenceResult& result) {
  return std::all_of(
      result.prompt_logits.begin(), result.prompt_logits.end(),
      [&](std::span<const float> logits) { return live.scorer.score(logits, scratch_); });
}

void Engine::Impl::deliver_token(LiveRequest& live, const SequenceResult& result) {
  Request& request = live.request;
  if (request.num_output_tokens() == 0) {
    totals_.num_prompt_tokens += request.num_prompt_tokens();
    totals_.num_cached_prompt_tokens += live.timer.num_cached_tokens();
  }
  TokenEvent event = result.chosen != nullptr ? request.take_token(*result.chosen)
                                              : request.next_token(result.logits, scratch_);
  event.prompt_logprobs = live.scorer.take();
  if (event.token_id) {
    ++totals_.num_output_tokens;
    live.timer.note_token(now_);
  }
  if (!event.finish_reason) scheduler_.note_token(result.id);
  deliver(result.id, std::move(event));
}

// Updates stats() and frees the request's id before the callback runs.
void Engine::Impl::deliver(SequenceId id, TokenEvent event) {
  const auto it = requests_.find(id);
  if (!event.finish_reason) {
    {
      const std::lock_guard lock(mutex_);
      publish();
    }
    it->second->request.call_back(event);
    return;
  }
  const LivePtr live = std::move(it->second);
  requests_.erase(it);
  sequence_ids_.erase(live->id);
  if (live->deadline) deadlines_.erase({*live->deadline, id});
  scheduler_.remove(id);
  pipeline_.give_back_slot(*live);
  {
    const std::lock_guard lock(mutex_);
    ledger_.end(live->id);
    publish();
  }
  event.times = live->timer.times_at_end(now_);
  live->request.call_back(event);
}

void Engine::Impl::end_request(SequenceId id, FinishReason reason, const std::string& error) {
  deliver(id, requests_.at(id)->request.end(reason, error));
}

void Engine::Impl::end_all(FinishReason reason, const std::string& error,
                           const std::string& stop_message) {
  {
    const std::lock_guard lock(mutex_);
    ledger_.stop(stop_message);  // from here on nothing is queued
    for (Command& command : commands_) taken_.push_back(std::move(command));
    commands_.clear();
  }
  now_ = parts_.clock();
  for (; next_taken_ < taken_.size(); ++next_taken_) {
    Command& command = taken_[next_taken_];
    if (command.live != nullptr) queue(std::move(command.live));
  }
  while (!requests_.empty()) end_request(requests_.begin()->first, reason, error);
}

Engine::Engine(std::unique_ptr<CausalLm> model, std::shared_ptr<const Tokenizer> tokenizer,
               std::vector<int32_t> eos_token_ids, const EngineConfig& config, EngineClock clock) {
  HALLEY_CHECK(model != nullptr);
  check_eos_token_ids(eos_token_ids, model->shape().vocab_size);
  EnginePlan plan = prepare_engine(*model, config);
  if (!clock) clock = [] { return std::chrono::steady_clock::now(); };
  impl_ = std::make_unique<Impl>(Impl::Parts{.model = std::move(model),
                                             .tokenizer = std::move(tokenizer),
                                             .eos_token_ids = std::move(eos_token_ids),
                                             .plan = std::move(plan),
                                             .clock = std::move(clock)});
}

Engine::~Engine() { impl_->stop(); }

SubmitResult Engine::submit(GenerateRequest request, RequestId id,
                            TokenCallback on_token) noexcept {
  return impl_->submit(std::move(request), id, std::move(on_token));
}

void Engine::cancel(RequestId id) noexcept { impl_->cancel(id); }

SubmitResult Engine::would_admit(int64_t num_prompt_tokens) const noexcept {
  return impl_->would_admit(num_prompt_tokens);
}

void Engine::drain(TimePoint limit) noexcept { impl_->drain(limit); }

void Engine::wait_until_idle() const { impl_->wait_until_idle(); }

EngineStats Engine::stats() const { return impl_->stats(); }

const EngineConfig& Engine::config() const { return impl_->config(); }

}  // namespace halley
