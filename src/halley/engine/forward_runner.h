// Adapts a synchronous model (CausalLm::forward) to StepRunner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/models/base/step_runner.h"

namespace halley {

/// Runs one step at a time and samples no token: the host gets all logits. Holds the model by
/// reference.
class ForwardRunner final : public StepRunner {
 public:
  explicit ForwardRunner(CausalLm& model) : model_(model) {}

  /// Ends the process: there are no slots.
  void start_slot(int32_t slot, const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                  std::span<const int32_t> output_ids) override;
  /// Runs the step, and throws what CausalLm::forward() throws.
  void launch(const RunnerStep& step, const KvCacheView& cache) override;
  const StepResult& wait() override { return result_; }

 private:
  CausalLm& model_;
  std::vector<float> logits_;
  StepResult result_;
};

}  // namespace halley
