// A wrapper of a model that records what each step had to read and compute.
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
  std::optional<StepSpan> span = {};
  double launch_us = 0, wait_us = 0;  // of the caller, in the runner's launch() and wait()
};

/// The steps since the last take(). Thread-safe.
class StepAccount {
 public:
  explicit StepAccount(DecoderCost cost) : cost_(std::move(cost)) {}

  const DecoderCost& cost() const { return cost_; }
  void add(const ForwardBatch& batch, int64_t num_logit_rows);
  /// The step added last has been launched.
  void note_launch(double microseconds);
  /// Records that the oldest running step ended, after a wait.
  void end(const std::optional<StepSpan>& span, double wait_us);
  /// Returns the ended steps; others come with the next call.
  std::vector<CountedStep> take();

 private:
  const DecoderCost cost_;
  std::mutex mutex_;
  std::vector<CountedStep> steps_;
  size_t num_ended_ = 0;  // of steps_
};

/// Lower bounds of the steps' times, by floor_seconds().
struct FloorSum {
  double decode_seconds = 0;   // of steps that decode alone
  double prefill_seconds = 0;  // of all others
  int64_t num_decode_steps = 0, num_prefill_steps = 0;
  int64_t num_sequences_max = 0;  // of a step
};
FloorSum sum_floors(const std::vector<CountedStep>& steps, GemmType linear_type,
                    const DeviceRates& rates);

/// Microseconds from the end of a step that decodes alone to the begin of the next one, where that
/// decodes alone too: the device's idle times.
std::vector<double> idle_between_decodes(const std::vector<CountedStep>& steps);

/// Times of consecutive steps on a device, and of their caller meanwhile. All zero without spans.
struct StepTimes {
  double decode_seconds = 0;                                     // of steps that decode alone
  double prefill_seconds = 0;                                    // of all others
  double idle_seconds = 0;                                       // between steps
  double decode_launch_seconds = 0, prefill_launch_seconds = 0;  // of the caller
  double wait_seconds = 0;                                       // of the caller
  double decode_sequences = 0;  // of a step that decodes alone, on average
};
StepTimes sum_times(const std::vector<CountedStep>& steps);

/// Forwards every call to `model`, and records each step before it runs.
class CountedModel final : public CausalLm {
 public:
  CountedModel(std::unique_ptr<CausalLm> model, std::shared_ptr<StepAccount> account);
  ~CountedModel() override;

  const ModelShape& shape() const override { return model_->shape(); }
  void forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) override;
  int num_stages() const override { return model_->num_stages(); }
  void begin(const ForwardBatch& batch, const KvCacheView& cache) override;
  void finish(Matrix logits) override;
  /// Not counted.
  std::vector<OpTime> profile(const ForwardBatch& batch, const KvCacheView& cache,
                              Matrix logits) override {
    return model_->profile(batch, cache, logits);
  }
  /// Not counted.
  std::vector<OpTime> op_costs(const ForwardBatch& batch, const KvCacheView& cache,
                               Matrix logits) override {
    return model_->op_costs(batch, cache, logits);
  }
  std::optional<int64_t> prepare(const StepLimits& limits) override;
  std::unique_ptr<KvMemory> make_kv_memory(size_t num_bytes) const override {
    return model_->make_kv_memory(num_bytes);
  }
  StepRunner* step_runner() override;
  std::string device_name() const override { return model_->device_name(); }
  std::vector<PrecisionLevel> precision_levels(KvDType kv_dtype) const override {
    return model_->precision_levels(kv_dtype);
  }
  WeightMemory weight_memory() const override { return model_->weight_memory(); }
  bool takes_adapters() const override { return model_->takes_adapters(); }

 private:
  class Runner;
  std::unique_ptr<CausalLm> model_;
  std::shared_ptr<StepAccount> account_;
  std::unique_ptr<Runner> runner_;  // around the model's, where that has one
};

}  // namespace halley
