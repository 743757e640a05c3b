// A model that keeps the account of its steps: what each had to read and compute.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "halley/models/base/causal_lm.h"
#include "halley/models/base/step_cost.h"
#include "halley/models/base/step_runner.h"

namespace halley {

struct CountedStep {
  StepCost cost = {};
  int64_t num_sequences = 0, num_rows = 0;
  bool is_decode = false;  // every sequence has one new token behind others
};

/// The steps since the last take(). Thread-safe.
class StepAccount {
 public:
  explicit StepAccount(DecoderCost cost) : cost_(std::move(cost)) {}

  const DecoderCost& cost() const { return cost_; }
  void add(const ForwardBatch& batch, int64_t num_logit_rows);
  std::vector<CountedStep> take();

 private:
  const DecoderCost cost_;
  std::mutex mutex_;
  std::vector<CountedStep> steps_;
};

/// What steps took at least, by floor_seconds().
struct FloorSum {
  double decode_seconds = 0;   // of steps that decode alone
  double prefill_seconds = 0;  // of all others
  int64_t num_decode_steps = 0, num_prefill_steps = 0;
  int64_t num_sequences_max = 0;  // of a step
};
FloorSum sum_floors(const std::vector<CountedStep>& steps, ProductType linear_type,
                    const DeviceRates& rates);

/// Does all that `model` does, and writes each step down before it runs.
class CountedModel final : public CausalLm {
 public:
  CountedModel(std::unique_ptr<CausalLm> model, std::shared_ptr<StepAccount> account);
  ~CountedModel() override;

  const ModelShape& shape() const override { return model_->shape(); }
  void forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) override;
  /// Not counted.
  std::vector<OpTime> profile(const ForwardBatch& batch, const KvCacheView& cache,
                              Matrix logits) override {
    return model_->profile(batch, cache, logits);
  }
  std::optional<int64_t> prepare(const StepLimits& limits) override;
  std::unique_ptr<KvMemory> make_kv_memory(size_t num_bytes) const override {
    return model_->make_kv_memory(num_bytes);
  }
  StepRunner* step_runner() override;
  std::string device_name() const override { return model_->device_name(); }
  WeightMemory weight_memory() const override { return model_->weight_memory(); }

 private:
  class Runner;
  std::unique_ptr<CausalLm> model_;
  std::shared_ptr<StepAccount> account_;
  std::unique_ptr<Runner> runner_;  // around the model's, where that has one
};

}  // namespace halley
