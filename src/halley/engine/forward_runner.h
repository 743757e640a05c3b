// Adapts a synchronous model (CausalLm::forward) to StepRunner.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "halley/engine/host_slot.h"
#include "halley/models/base/step_runner.h"
#include "halley/sampling/base/sampler.h"

namespace halley {

/// A step or choice has run when its call returns, and must be waited for before the next call.
/// Holds the model by reference. Logits of deferred choices take 4 bytes for each token of the
/// vocabulary and slot.
class ForwardRunner final : public StepRunner {
 public:
  ForwardRunner(CausalLm& model, int64_t num_slots)
      : model_(model), slots_(static_cast<size_t>(num_slots)) {}

  void start_slot(int32_t slot, const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                  std::span<const int32_t> output_ids) override;
  /// Throws what CausalLm::forward() throws.
  void launch(const RunnerStep& step, const KvCacheView& cache) override;
  void choose(std::span<const MaskedChoice> choices) override;
  const StepResult& wait() override { return result_; }
  bool is_ready() const override { return true; }

 private:
  HostSlot& slot(int32_t index);
  std::span<const int32_t> known_ids(std::span<const int32_t> token_ids);
  void select_rows(const RunnerStep& step);
  std::span<const float> logits_of(int32_t row) const;
  void keep_wanted_rows(std::span<const int32_t> logit_rows);

  CausalLm& model_;
  std::vector<std::optional<HostSlot>> slots_;
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> rows_;  // with logits, ascending
  std::vector<float> logits_;  // [rows_.size(), V]
  SamplerScratch scratch_;
  StepResult result_;
};

}  // namespace halley
