#include "halley/models/base/counted_model.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "halley/base/check.h"

namespace halley {

void StepAccount::add(const ForwardBatch& batch, int64_t num_logit_rows) {
  std::vector<SequenceStep> sequences;
  CountedStep step = {.num_sequences = static_cast<int64_t>(batch.sequences.size()),
                      .num_rows = static_cast<int64_t>(batch.token_ids.size()),
                      .is_decode = true};
  for (const BatchSequence& sequence : batch.sequences) {
    sequences.push_back({.num_past = sequence.num_past_tokens, .num_new = sequence.num_new_tokens});
    step.is_decode = step.is_decode && sequence.num_new_tokens == 1 && sequence.num_past_tokens > 0;
  }
  step.cost = step_cost(cost_, sequences, num_logit_rows);
  const std::lock_guard lock(mutex_);
  steps_.push_back(step);
}

void StepAccount::note_launch(double microseconds) {
  const std::lock_guard lock(mutex_);
  HALLEY_CHECK(!steps_.empty());
  steps_.back().launch_us = microseconds;
}

void StepAccount::end(const std::optional<StepSpan>& span, double wait_us) {
  const std::lock_guard lock(mutex_);
  HALLEY_CHECK(num_ended_ < steps_.size(), num_ended_);
  CountedStep& step = steps_[num_ended_++];
  step.span = span;
  step.wait_us = wait_us;
}

std::vector<CountedStep> StepAccount::take() {
  const std::lock_guard lock(mutex_);
  const auto ended = steps_.begin() + static_cast<std::ptrdiff_t>(std::exchange(num_ended_, 0));
  std::vector<CountedStep> steps(steps_.begin(), ended);
  steps_.erase(steps_.begin(), ended);
  return steps;
}

std::vector<double> idle_between_decodes(const std::vector<CountedStep>& steps) {
  std::vector<double> idle;
  for (size_t i = 1; i < steps.size(); ++i) {
    const CountedStep &last = steps[i - 1], &step = steps[i];
    if (!last.is_decode || !step.is_decode || !last.span || !step.span) continue;
    idle.push_back(step.span->begin_us - last.span->end_us);
  }
  return idle;
}

FloorSum sum_floors(const std::vector<CountedStep>& steps, GemmType linear_type,
                    const DeviceRates& rates) {
  FloorSum sum;
  for (const CountedStep& step : steps) {
    const double seconds = floor_seconds(step.cost, linear_type, rates);
    (step.is_decode ? sum.decode_seconds : sum.prefill_seconds) += seconds;
    ++(step.is_decode ? sum.num_decode_steps : sum.num_prefill_steps);
    sum.num_sequences_max = std::max(sum.num_sequences_max, step.num_sequences);
  }
  return sum;
}

StepTimes sum_times(const std::vector<CountedStep>& steps) {
  StepTimes sum;
  double end_us = 0;
  int64_t num_decodes = 0;
  for (const CountedStep& step : steps) {
    if (!step.span) return {};
    const double seconds = 1e-6 * (step.span->end_us - step.span->begin_us);
    (step.is_decode ? sum.decode_seconds : sum.prefill_seconds) += seconds;
    if (end_us > 0) sum.idle_seconds += 1e-6 * (step.span->begin_us - end_us);
    end_us = step.span->end_us;
    (step.is_decode ? sum.decode_launch_seconds : sum.prefill_launch_seconds) +=
        1e-6 * step.launch_us;
    sum.wait_seconds += 1e-6 * step.wait_us;
    if (!step.is_decode) continue;
    ++num_decodes;
    sum.decode_sequences += static_cast<double>(step.num_sequences);
  }
  if (num_decodes > 0) sum.decode_sequences /= static_cast<double>(num_decodes);
  return sum;
}

class CountedModel::Runner final : public StepRunner {
 public:
  Runner(StepRunner& runner, StepAccount& account) : runner_(runner), account_(account) {}

  bool is_around(const StepRunner& runner) const { return &runner_ == &runner; }
  bool samples_on_host() const override { return runner_.samples_on_host(); }
  int num_in_flight_max() const override { return runner_.num_in_flight_max(); }
  void start_slot(int32_t slot, const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                  std::span<const int32_t> output_ids) override {
    runner_.start_slot(slot, choice, prompt_ids, output_ids);
  }
  void launch(const RunnerStep& step, const KvCacheView& cache) override {
    // A row may be in both choices and logit_rows; its logits are computed once.
    std::vector<int32_t> rows(step.batch.logit_rows.begin(), step.batch.logit_rows.end());
    for (const RowChoice& choice : step.choices) rows.push_back(choice.row);
    std::sort(rows.begin(), rows.end());
    account_.add(step.batch, std::unique(rows.begin(), rows.end()) - rows.begin());
    const auto start = Clock::now();
    runner_.launch(step, cache);
    account_.note_launch(microseconds_since(start));
    are_steps_.push_back(true);
  }
  void choose(std::span<const MaskedChoice> choices) override {
    runner_.choose(choices);
    are_steps_.push_back(false);
  }
  const StepResult& wait() override {
    const auto start = Clock::now();
    const StepResult& result = runner_.wait();
    const bool is_step = are_steps_.front();
    are_steps_.pop_front();
    if (is_step) account_.end(result.span, microseconds_since(start));
    return result;
  }
  bool is_ready() const override { return runner_.is_ready(); }

 private:
  using Clock = std::chrono::steady_clock;
  static double microseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

  StepRunner& runner_;
  StepAccount& account_;
  std::deque<bool> are_steps_;  // what is in flight
};

CountedModel::CountedModel(std::unique_ptr<CausalLm> model, std::shared_ptr<StepAccount> account)
    : model_(std::move(model)), account_(std::move(account)) {
  HALLEY_CHECK(model_ != nullptr);
  HALLEY_CHECK(account_ != nullptr);
}

CountedModel::~CountedModel() = default;

void CountedModel::forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) {
  account_->add(batch, static_cast<int64_t>(batch.logit_rows.size()));
  model_->forward(batch, cache, logits);
  account_->end(std::nullopt, 0);
}

void CountedModel::begin(const ForwardBatch& batch, const KvCacheView& cache) {
  account_->add(batch, static_cast<int64_t>(batch.logit_rows.size()));
  model_->begin(batch, cache);
}

void CountedModel::finish(Matrix logits) {
  model_->finish(logits);
  account_->end(std::nullopt, 0);
}

std::optional<int64_t> CountedModel::prepare(const StepLimits& limits) {
  runner_.reset();
  return model_->prepare(limits);
}

StepRunner* CountedModel::step_runner() {
  StepRunner* runner = model_->step_runner();
  if (runner == nullptr) return nullptr;
  if (runner_ == nullptr || !runner_->is_around(*runner)) {
    runner_ = std::make_unique<Runner>(*runner, *account_);
  }
  return runner_.get();
}

}  // namespace halley
