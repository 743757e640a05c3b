// A step runner that computes nothing and moves a virtual clock by the time of each step.
#pragma once

#include <span>
#include <vector>

#include "halley/engine/request_times.h"
#include "halley/models/base/step_runner.h"
#include "halley/simulation/simulated_engine.h"

namespace halley {

/// For an engine's warm-up alone: steps run at their launch, and choose nothing.
class SimulatedRunner final : public StepRunner {
 public:
  /// `engine` must outlive this object.
  explicit SimulatedRunner(const SimulatedEngine& engine) : engine_(engine) {}

  TimePoint now() const { return now_; }

  void start_slot(int32_t, const TokenChoice&, std::span<const int32_t>,
                  std::span<const int32_t>) override {}
  void launch(const RunnerStep& step, const KvCacheView& cache) override;
  void choose(std::span<const MaskedChoice>) override {}
  const StepResult& wait() override { return result_; }
  bool is_ready() const override { return true; }

 private:
  const SimulatedEngine& engine_;
  TimePoint now_ = {};
  StepResult result_;
};

}  // namespace halley
