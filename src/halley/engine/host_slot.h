// The sampling state of one sequence in the host's memory, as a StepRunner's slot has it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "halley/sampling/base/sampler.h"
#include "halley/sampling/base/token_choice.h"
#include "halley/sampling/base/token_mask.h"

namespace halley {

/// Not thread-safe.
class HostSlot {
 public:
  HostSlot(const TokenChoice& choice, std::span<const int32_t> prompt_ids,
           std::span<const int32_t> output_ids);

  /// The token chosen last; there is one.
  int32_t last_token() const;
  ChosenToken choose(std::span<const float> logits, SamplerScratch& scratch);

  /// Copies logits for one later choice from them.
  void defer(std::span<const float> logits);
  /// Chooses among the tokens of the mask from the logits that wait; there are some.
  ChosenToken choose_deferred(const TokenMask& allowed, SamplerScratch& scratch);

 private:
  ChosenToken sample(std::span<const float> logits, SamplerScratch& scratch,
                     const TokenMask* allowed);

  Sampler sampler_;
  std::optional<int32_t> last_token_;
  std::vector<float> deferred_;
  bool has_deferred_ = false;
};

}  // namespace halley
