#include "halley/models/base/counted_model.h"

#include <algorithm>
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

std::vector<CountedStep> StepAccount::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(steps_, {});
}

FloorSum sum_floors(const std::vector<CountedStep>& steps, ProductType linear_type,
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

class CountedModel::Runner final : public StepRunner {
 public:
  Runner(StepRunner& runner, StepAccount& account) : runner_(runner), account_(account) {}

  bool is_around(const StepRunner& runner) const { return &runner_ == &runner; }
  void start_slot(int32_t slot, const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                  std::span<const int32_t> output_ids) override {
    runner_.start_slot(slot, choice, prompt_ids, output_ids);
  }
  void launch(const RunnerStep& step, const KvCacheView& cache) override {
    // A row may be both chosen from and asked for; its logits are computed once.
    std::vector<int32_t> rows(step.batch.logit_rows.begin(), step.batch.logit_rows.end());
    for (const RowChoice& choice : step.choices) rows.push_back(choice.row);
    std::sort(rows.begin(), rows.end());
    account_.add(step.batch, std::unique(rows.begin(), rows.end()) - rows.begin());
    runner_.launch(step, cache);
  }
  const StepResult& wait() override { return runner_.wait(); }

 private:
  StepRunner& runner_;
  StepAccount& account_;
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
