#include "halley/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_set>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/available_memory.h"
#include "halley/engine/engine_plan.h"
#include "halley/engine/kv_cache.h"
#include "halley/engine/philox.h"
#include "halley/engine/request.h"
#include "halley/engine/scheduler.h"

namespace halley {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

void check_eos_token_ids(const std::vector<int32_t>& ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      throw InputError(str("eos_token_ids: expected token ids of 0 to ", vocab_size - 1, ", got ",
                           id, ". Check generation_config.json."));
    }
  }
}

}  // namespace

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  check_failed("FinishReason", str(static_cast<int>(reason)), __FILE__, __LINE__);
}

// Two groups of members: what `mutex_` guards, which every thread sees, and what the engine's own
// thread alone touches. Callbacks run without the lock.
class Engine::Impl {
 public:
  Impl(std::unique_ptr<CausalLm> model, std::shared_ptr<const Tokenizer> tokenizer,
       std::vector<int32_t> eos_token_ids, EnginePlan plan);

  /// Ends the thread. To be called once, before the destructor, as callbacks may use this
  /// meanwhile.
  void stop();
  SubmitResult submit(GenerateRequest request, RequestId id, TokenCallback on_token);
  void cancel(RequestId id);
  EngineStats stats() const;
  const EngineConfig& config() const { return plan_.config; }

 private:
  // A submit, or a cancel where there is no request.
  struct Command {
    RequestId id = 0;
    std::unique_ptr<Request> request;
  };

  SubmitResult why_refused(const GenerateRequest& request, const TokenCallback& on_token) const;

  void run();
  void run_until_ended();
  bool take_commands();
  void obey_commands();
  void step();
  void forward(const StepPlan& plan);
  void deliver_tokens(const StepPlan& plan);
  void deliver(RequestId id, const TokenEvent& event);
  void end_request(RequestId id, FinishReason reason, const std::string& error);
  void end_all(FinishReason reason, const std::string& error, const std::string& stop_message);
  void publish();

  const std::unique_ptr<CausalLm> model_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::vector<int32_t> eos_token_ids_;
  const EnginePlan plan_;
  const SchedulerConfig scheduler_config_;
  const uint64_t seed_;  // of the seeds of requests that state none
  std::atomic<uint64_t> num_submits_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Command> commands_;           // in the order of the calls
  std::unordered_set<RequestId> live_ids_;  // queued or running, the last event not delivered
  int64_t num_queued_ = 0;                  // live and never run
  EngineStats stats_;
  bool is_ending_ = false;
  std::string stop_message_;  // why submit() refuses everything; empty: it does not

  Scheduler scheduler_;
  KvCache cache_;
  std::map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<Command> taken_;  // commands to obey, from next_taken_ on
  size_t next_taken_ = 0;
  EngineStats totals_;  // the sums of stats_
  std::vector<int32_t> token_ids_, logit_rows_;
  std::vector<BatchSequence> sequences_;
  std::vector<float> logits_;  // [complete sequences of the step, V]
  SamplerScratch scratch_;

  std::thread thread_;  // the last member: it uses all others
};

Engine::Impl::Impl(std::unique_ptr<CausalLm> model, std::shared_ptr<const Tokenizer> tokenizer,
                   std::vector<int32_t> eos_token_ids, EnginePlan plan)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      eos_token_ids_(std::move(eos_token_ids)),
      plan_(std::move(plan)),
      scheduler_config_(scheduler_config(plan_)),
      seed_(random_seed()),
      scheduler_(scheduler_config_),
      cache_(plan_.layout, model_->shape(), plan_.num_pages) {
  publish();
  thread_ = std::thread([this] { run(); });
}

void Engine::Impl::stop() {
  HALLEY_CHECK(std::this_thread::get_id() != thread_.get_id());  // ended by its own callback
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

SubmitResult Engine::Impl::why_refused(const GenerateRequest& request,
                                       const TokenCallback& on_token) const {
  try {
    check_request(request, model_->shape().vocab_size, tokenizer_ != nullptr);
  } catch (const InputError& error) {
    return {Submit::kInvalid, error.what()};
  }
  if (!on_token) return {Submit::kInvalid, "on_token: expected a callback, got none"};
  const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
  if (!Scheduler::can_fit(scheduler_config_, num_prompt_tokens, request.sampling.max_tokens)) {
    return {Submit::kTooLong,
            str("prompt_ids: expected fewer than max_model_len=", scheduler_config_.max_model_len,
                " tokens, got ", num_prompt_tokens, ". Shorten the prompt.")};
  }
  return {};
}

SubmitResult Engine::Impl::submit(GenerateRequest request, RequestId id, TokenCallback on_token) {
  SubmitResult refusal = why_refused(request, on_token);
  if (refusal.status != Submit::kQueued) return refusal;
  const RequestContext context = {.tokenizer = tokenizer_.get(),
                                  .eos_token_ids = eos_token_ids_,
                                  .max_model_len = scheduler_config_.max_model_len,
                                  .seed = random_bits(seed_, num_submits_++)};
  auto queued = std::make_unique<Request>(std::move(request), std::move(on_token), context);
  {
    const std::lock_guard lock(mutex_);
    if (!stop_message_.empty() || is_ending_) {
      return {Submit::kStopped, stop_message_.empty() ? "engine: it is ending" : stop_message_};
    }
    if (live_ids_.contains(id)) {
      return {Submit::kInvalid, str("id: expected one that is not in use, got ", id)};
    }
    if (num_queued_ >= scheduler_config_.max_num_queued) {
      return {Submit::kQueueFull,
              str("queue: expected fewer than max_num_queued=", scheduler_config_.max_num_queued,
                  " waiting requests, got ", num_queued_, ". Try again later.")};
    }
    commands_.push_back({id, std::move(queued)});
    live_ids_.insert(id);
    ++num_queued_;
    ++stats_.num_waiting;
  }
  wake_.notify_one();
  return {};
}

void Engine::Impl::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    if (!live_ids_.contains(id)) return;
    commands_.push_back({id, nullptr});
  }
  wake_.notify_one();
}

EngineStats Engine::Impl::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Engine::Impl::publish() {
  const std::lock_guard lock(mutex_);
  const auto count_submits = [](auto begin, auto end) {
    return std::count_if(begin, end,
                         [](const Command& command) { return command.request != nullptr; });
  };
  // Submits that the scheduler has not seen yet wait too.
  const int64_t num_unseen =
      count_submits(commands_.begin(), commands_.end()) +
      count_submits(taken_.begin() + static_cast<ptrdiff_t>(next_taken_), taken_.end());
  stats_ = totals_;
  stats_.num_running = scheduler_.num_running();
  stats_.num_waiting = scheduler_.num_waiting() + num_unseen;
  stats_.num_pages = scheduler_.num_pages();
  stats_.num_free_pages = scheduler_.num_free_pages();
  num_queued_ = scheduler_.num_never_run() + num_unseen;
}

// The edge: whatever the model throws ends all requests, and the engine with them.
void Engine::Impl::run() {
  try {
    run_until_ended();
    end_all(FinishReason::kCancelled, "", "engine: it is ending");
  } catch (const std::exception& error) {
    end_all(FinishReason::kError, error.what(),
            str("engine: stopped after an error: ", error.what()));
  }
}

void Engine::Impl::run_until_ended() {
  while (take_commands()) {
    obey_commands();
    step();
  }
}

// Waits while there is nothing to do. False: the engine ends.
bool Engine::Impl::take_commands() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return is_ending_ || !commands_.empty() || !requests_.empty(); });
  if (is_ending_) return false;
  taken_ = std::exchange(commands_, {});
  next_taken_ = 0;
  return true;
}

void Engine::Impl::obey_commands() {
  while (next_taken_ < taken_.size()) {
    const RequestId id = taken_[next_taken_].id;
    std::unique_ptr<Request> request = std::move(taken_[next_taken_].request);
    ++next_taken_;
    if (request == nullptr) {
      if (requests_.contains(id)) end_request(id, FinishReason::kCancelled, "");
      continue;
    }
    const Admission admission =
        scheduler_.add(id, request->num_prompt_tokens(), request->max_tokens());
    HALLEY_CHECK(admission == Admission::kQueued,
                 static_cast<int>(admission));  // submit() saw to it
    requests_.emplace(id, std::move(request));
  }
  taken_.clear();
  next_taken_ = 0;
}

void Engine::Impl::step() {
  const StepPlan plan = scheduler_.schedule();
  if (plan.sequences.empty()) return;
  ++totals_.num_steps;
  totals_.num_preemptions += static_cast<int64_t>(plan.preempted.size());
  publish();
  forward(plan);
  scheduler_.update(plan);
  deliver_tokens(plan);
}

void Engine::Impl::forward(const StepPlan& plan) {
  token_ids_.clear();
  logit_rows_.clear();
  sequences_.clear();
  for (const ScheduledSequence& scheduled : plan.sequences) {
    const std::span<const int32_t> tokens = requests_.at(scheduled.id)
                                                ->tokens()
                                                .subspan(static_cast<size_t>(scheduled.num_past),
                                                         static_cast<size_t>(scheduled.num_rows));
    sequences_.push_back({.first_row = static_cast<int64_t>(token_ids_.size()),
                          .num_new_tokens = scheduled.num_rows,
                          .num_past_tokens = scheduled.num_past,
                          .page_table = scheduled.page_table});
    token_ids_.insert(token_ids_.end(), tokens.begin(), tokens.end());
    if (scheduled.is_complete) logit_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
  }
  const auto num_logit_rows = static_cast<int64_t>(logit_rows_.size());
  const int64_t vocab_size = model_->shape().vocab_size;
  const auto num_logits = static_cast<size_t>(num_logit_rows * vocab_size);
  if (logits_.size() < num_logits) logits_.resize(num_logits);
  model_->forward({token_ids_, sequences_, logit_rows_}, cache_.view(),
                  f32_matrix(logits_.data(), num_logit_rows, vocab_size));
}

void Engine::Impl::deliver_tokens(const StepPlan& plan) {
  const auto vocab_size = static_cast<size_t>(model_->shape().vocab_size);
  size_t row = 0;
  for (const ScheduledSequence& scheduled : plan.sequences) {
    if (!scheduled.is_complete) continue;
    const std::span<const float> logits(logits_.data() + row * vocab_size, vocab_size);
    ++row;
    Request& request = *requests_.at(scheduled.id);
    if (request.num_output_tokens() == 0) totals_.num_prompt_tokens += request.num_prompt_tokens();
    const TokenEvent event = request.next_token(logits, scratch_);
    if (event.token_id) ++totals_.num_output_tokens;
    deliver(scheduled.id, event);
  }
}

// What the caller sees in stats(), and which ids are free, is up to date before the callback runs.
void Engine::Impl::deliver(RequestId id, const TokenEvent& event) {
  const auto place = requests_.find(id);
  if (!event.finish_reason) {
    publish();
    place->second->call_back(event);
    return;
  }
  const std::unique_ptr<Request> request = std::move(place->second);
  requests_.erase(place);
  scheduler_.remove(id);
  {
    const std::lock_guard lock(mutex_);
    live_ids_.erase(id);
  }
  publish();
  request->call_back(event);
}

void Engine::Impl::end_request(RequestId id, FinishReason reason, const std::string& error) {
  deliver(id, requests_.at(id)->end(reason, error));
}

void Engine::Impl::end_all(FinishReason reason, const std::string& error,
                           const std::string& stop_message) {
  {
    const std::lock_guard lock(mutex_);
    stop_message_ = stop_message;  // from here on nothing is queued any more
    for (Command& command : commands_) taken_.push_back(std::move(command));
    commands_.clear();
  }
  for (; next_taken_ < taken_.size(); ++next_taken_) {
    Command& command = taken_[next_taken_];
    if (command.request != nullptr) requests_.emplace(command.id, std::move(command.request));
  }
  while (!requests_.empty()) end_request(requests_.begin()->first, reason, error);
}

Engine::Engine(std::unique_ptr<CausalLm> model, std::shared_ptr<const Tokenizer> tokenizer,
               std::vector<int32_t> eos_token_ids, const EngineConfig& config) {
  HALLEY_CHECK(model != nullptr);
  check_eos_token_ids(eos_token_ids, model->shape().vocab_size);
  EnginePlan plan = plan_engine(config, model->shape(), available_memory_bytes());
  impl_ = std::make_unique<Impl>(std::move(model), std::move(tokenizer), std::move(eos_token_ids),
                                 std::move(plan));
}

Engine::~Engine() { impl_->stop(); }

SubmitResult Engine::submit(GenerateRequest request, RequestId id,
                            TokenCallback on_token) noexcept {
  return impl_->submit(std::move(request), id, std::move(on_token));
}

void Engine::cancel(RequestId id) noexcept { impl_->cancel(id); }

EngineStats Engine::stats() const { return impl_->stats(); }

const EngineConfig& Engine::config() const { return impl_->config(); }

}  // namespace halley
