// The engine's thread: steps, and what comes of them.
#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "halley/base/check.h"
#include "halley/engine/engine_impl.h"

namespace halley {
namespace {

const char* const kPromptLogitsError =
    "prompt logits: expected finite numbers, got NaN or infinity. The weights may be damaged, or "
    "the model overflows its number format.";

const char* const kPooledRowsError =
    "hidden states or logits: expected finite numbers, got NaN or infinity. The weights may be "
    "damaged, or the model overflows its number format.";

// While a device works on a step, the next one waits this long at a time for masks.
constexpr std::chrono::microseconds kHoldPeriod{50};
// While requests wait for masks alone, deadlines are looked at this often.
constexpr std::chrono::milliseconds kMaskPeriod{10};

}  // namespace

// Any exception of the model ends all requests and the engine.
void Engine::Impl::run() {
  std::optional<std::string> failure;
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
    failure = error.what();
  }
  pipeline_.abandon();
  {
    const std::lock_guard lock(mutex_);
    is_idle_ = true;
  }
  idle_.notify_all();
  if (failure && config().on_failure) config().on_failure(*failure);
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
  if (live->constraint == nullptr) {
    scheduler_.add(live->sequence);
  } else {
    constrained_.add(*live);
  }
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
  hold_for_masks();
  now_ = parts_.clock();
  settle_constrained();
  launch_choices();
  for (const LiveRequest* live : constrained_.let_in()) scheduler_.add(live->sequence);
  const PlannedStep planned = planner_.plan(now_);
  note_plan(planned.plan);
  const bool has_step = !planned.plan.sequences.empty();
  if (has_step) launch_step(planned);
  if (!has_step && pipeline_.is_empty() && constrained_.has_job()) wait_for_mask();
  if (pipeline_.is_full() || (!has_step && !pipeline_.is_empty())) finish_call();
  // Choices are quick, and what they wait for has been waited for.
  while (!pipeline_.is_empty() && pipeline_.is_choice_next()) finish_call();
}

// While a device works, masks that may be done in time are waited for, so that their requests do
// not miss the next step.
void Engine::Impl::hold_for_masks() {
  while (!pipeline_.is_empty() && !pipeline_.is_ready() && constrained_.has_fresh_job()) {
    if (masks_->work_here()) continue;
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kHoldPeriod, [&] { return has_mask_; });
    has_mask_ = false;
  }
}

// Nothing can run until a mask is done.
void Engine::Impl::wait_for_mask() {
  if (masks_->work_here()) return;
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, kMaskPeriod, [&] { return is_ending_ || has_mask_ || !commands_.empty(); });
  has_mask_ = false;
}

void Engine::Impl::settle_constrained() {
  for (const ConstrainedRequests::Settled& settled : constrained_.settled()) {
    LiveRequest& live = *settled.live;
    const SequenceId id = live.sequence.id;
    if (settled.chosen) deliver_token(live, *settled.chosen, settled.state);
    if (settled.state == OutputState::kNoMask && requests_.contains(id)) {
      end_by(id, live.request.end_without_mask());
    }
  }
}

void Engine::Impl::launch_choices() {
  if (pipeline_.is_full_of_choices()) return;
  std::vector<StepPipeline::Choice> choices;
  for (LiveRequest* live : constrained_.choosable()) {
    constrained_.note_choice(*live);
    choices.push_back({live, scheduler_.choice_launched(live->sequence.id)});
  }
  if (choices.empty()) return;
  pipeline_.choose(choices);
  if (!pipeline_.is_synchronous()) return;
  // The tokens are there: their next masks can be made while the next step runs.
  finish_call();
  settle_constrained();
}

void Engine::Impl::launch_step(const PlannedStep& step) {
  const StepPlan& plan = step.plan;
  const size_t level = step.decision.level;
  lives_.clear();
  for (const ScheduledSequence& scheduled : plan.sequences) {
    lives_.push_back(requests_.at(scheduled.id).get());
  }
  pipeline_.launch(plan, lives_,
                   {.index = level, .precision = planner_.precision().precision_of(level)});
  scheduler_.launched(plan);
  const int64_t num_switches = planner_.precision().stats().num_switches;
  planner_.note_launch(step, now_);
  note_switches(num_switches);
  for (size_t i = 0; i < lives_.size(); ++i) {
    const bool has_logits = plan.sequences[i].is_complete && lives_[i]->constraint != nullptr;
    if (has_logits) constrained_.note_logits(*lives_[i]);
  }
}

void Engine::Impl::note_switches(int64_t num_before) {
  const PrecisionStats& stats = planner_.precision().stats();
  if (stats.num_switches == num_before || !config().on_precision_switch) return;
  config().on_precision_switch(stats.last_switches.back());
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
    constrained_.drop_logits(live);
  }
  constrained_.note_plan();
  const std::lock_guard lock(mutex_);
  for (const StartedSequence& started : plan.started) {
    LiveRequest& live = *requests_.at(started.id);
    live.timer.start(now_, started.num_cached);
    ledger_.start(live.id);
  }
  publish();
}

void Engine::Impl::finish_call() {
  const bool is_step = !pipeline_.is_choice_next();
  const std::span<const SequenceResult> results = pipeline_.wait();
  now_ = parts_.clock();
  if (is_step) planner_.note_end(now_);
  for (const SequenceResult& result : results) {
    const auto it = requests_.find(result.id);
    if (it == requests_.end()) continue;  // it has ended since the launch
    LiveRequest& live = *it->second;
    if (live.pooler) {
      take_pooled(live, result);
    } else if (!score_prompt(live, result)) {
      end_request(result.id, FinishReason::kError, kPromptLogitsError);
    } else if (result.chosen != nullptr) {
      take_token(live, *result.chosen);
    }
  }
}

bool Engine::Impl::score_prompt(LiveRequest& live, const SequenceResult& result) {
  return std::all_of(
      result.prompt_logits.begin(), result.prompt_logits.end(),
      [&](std::span<const float> logits) { return live.scorer.score(logits, scratch_); });
}

void Engine::Impl::take_pooled(LiveRequest& live, const SequenceResult& result) {
  for (const std::span<const float> row : result.pooled_rows) {
    if (!live.pooler->add(row)) {
      return end_request(live.sequence.id, FinishReason::kError, kPooledRowsError);
    }
  }
  if (!live.pooler->is_complete()) return;
  totals_.num_prompt_tokens += live.request.num_prompt_tokens();
  totals_.num_cached_prompt_tokens += live.timer.num_cached_tokens();
  TokenEvent event;
  event.finish_reason = FinishReason::kStop;
  event.pooled = live.pooler->take();
  end_by(live.sequence.id, std::move(event));
}

void Engine::Impl::take_token(LiveRequest& live, const ChosenToken& chosen) {
  if (live.constraint == nullptr || live.request.is_end(chosen)) {
    deliver_token(live, chosen, OutputState::kOpen);
  } else {
    constrained_.take_choice(live, chosen, /*needs_mask=*/!live.request.is_next_the_last());
  }
}

void Engine::Impl::deliver_token(LiveRequest& live, const ChosenToken& chosen, OutputState state) {
  Request& request = live.request;
  if (request.num_output_tokens() == 0) {
    totals_.num_prompt_tokens += request.num_prompt_tokens();
    totals_.num_cached_prompt_tokens += live.timer.num_cached_tokens();
  }
  TokenEvent event = request.take_token(chosen, state);
  event.prompt_logprobs = live.scorer.take();
  if (event.token_id) {
    ++totals_.num_output_tokens;
    note_token(live, event);
  }
  if (event.finish_reason) return end_by(live.sequence.id, std::move(event));
  scheduler_.note_token(live.sequence.id);
  {
    const std::lock_guard lock(mutex_);
    publish_tokens();
  }
  request.call_back(event);
}

void Engine::Impl::note_token(LiveRequest& live, TokenEvent& event) {
  live.timer.note_token(now_);
  live.demand.note_token(now_);
  HALLEY_CHECK(!live.token_levels.empty(), live.sequence.id);
  const size_t level = live.token_levels.front();
  live.token_levels.pop_front();
  event.is_low = level > 0;
  planner_.precision().note_token(level);
}

// Updates stats() and frees the request's id before the callback runs.
void Engine::Impl::end_by(SequenceId id, TokenEvent event) {
  const auto it = requests_.find(id);
  const LivePtr live = std::move(it->second);
  requests_.erase(it);
  sequence_ids_.erase(live->id);
  if (live->deadline) deadlines_.erase({*live->deadline, id});
  scheduler_.remove(id);
  pipeline_.give_back_slot(*live);
  constrained_.end(*live);
  event.times = live->timer.times_at_end(now_);
  planner_.precision().note_objectives(live->demand.slo, *event.times);
  {
    const std::lock_guard lock(mutex_);
    ledger_.end(live->id);
    publish();
  }
  live->request.call_back(event);
}

void Engine::Impl::end_request(SequenceId id, FinishReason reason, const std::string& error) {
  end_by(id, requests_.at(id)->request.end(reason, error));
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

}  // namespace halley
