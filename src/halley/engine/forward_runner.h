// Adapts a model without a StepRunner of its own to that interface.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "halley/engine/host_slot.h"
#include "halley/models/base/step_runner.h"
#include "halley/sampling/base/sampler.h"
#include "halley/sampling/base/token_mask.h"

namespace halley {

/// As many steps are in flight as the model has stages; with one, a step has run when launch()
/// returns. Tokens are chosen in wait(), and what launch() gets refers to no token that is not
/// chosen yet. Holds the model by reference. Logits of deferred choices take 4 bytes for each token
/// of the vocabulary and slot.
class ForwardRunner final : public StepRunner {
 public:
  ForwardRunner(CausalLm& model, int64_t num_slots)
      : model_(model), slots_(static_cast<size_t>(num_slots)) {}

  bool samples_on_host() const override { return true; }
  int num_in_flight_max() const override { return model_.num_stages(); }
  void start_slot(int32_t slot, const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                  std::span<const int32_t> output_ids) override;
  /// Throws what CausalLm::forward() throws.
  void launch(const RunnerStep& step, const KvCacheView& cache) override;
  void choose(std::span<const MaskedChoice> choices) override;
  const StepResult& wait() override;
  bool is_ready() const override { return true; }

 private:
  /// A slot's state lives on for its choices in flight when another sequence takes the slot.
  using SlotPtr = std::shared_ptr<HostSlot>;
  struct Choice {
    SlotPtr slot;
    int32_t row = 0;
    bool is_deferred = false;
  };
  struct Masked {
    SlotPtr slot;
    TokenMask allowed;
  };
  /// A launch() or a choose().
  struct Flight {
    bool is_step = false;
    std::vector<int32_t> rows;         // with logits, ascending
    std::vector<int32_t> wanted_rows;  // those among them that the caller gets
    int64_t num_hidden_rows = 0;       // in hidden_
    std::vector<Choice> choices;
    std::vector<Masked> masked;
  };

  const SlotPtr& slot(int32_t index) const;
  std::span<const int32_t> known_ids(std::span<const int32_t> token_ids);
  Matrix logits_for(const Flight& flight);
  Matrix hidden_for(const Flight& flight);
  std::span<const float> logits_of(const Flight& flight, int32_t row) const;
  void choose_tokens(const Flight& flight);
  void keep_wanted_rows(const Flight& flight);

  CausalLm& model_;
  std::vector<SlotPtr> slots_;  // null: nobody has taken it yet
  std::vector<int32_t> token_ids_;
  std::deque<Flight> flights_;  // the oldest first
  std::vector<float> logits_;   // of the rows of one flight, [rows, V]
  std::vector<float> hidden_;   // the same for hidden states; models in stages give none
  SamplerScratch scratch_;
  StepResult result_;
};

}  // namespace halley
