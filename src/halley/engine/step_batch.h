// Converts a step of the scheduler into the model's input batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "halley/engine/pooler.h"
#include "halley/engine/prompt_scorer.h"
#include "halley/engine/scheduler.h"
#include "halley/models/base/step_runner.h"

namespace halley {

/// Inputs of a sequence in a step that the scheduler does not have.
struct BatchInput {
  std::span<const int32_t> tokens;      // all known tokens
  PromptScorer::Rows scored_rows = {};  // its rows that score the prompt
  std::optional<int32_t> slot = {};     // has the unknown token; set if the sequence is complete
                                        // and generates
  bool is_choice_deferred = false;
  const Pooler* pooler = nullptr;  // of a request that generates nothing: it has no slot
  Pooler::Rows pooled_rows = {};   // its rows for the pooler
  const Adapter* adapter = nullptr;
};

/// Reuses its memory from step to step. Not thread-safe.
class StepBatch {
 public:
  /// Begins a step, of layers in two precisions in this one.
  void clear(std::optional<Precision> precision = {});

  /// Appends a sequence of the plan. The page table must live until the step is launched. The model
  /// returns logits for the scored rows and, if the sequence is complete, chooses a token from its
  /// last row or leaves its logits at the slot. A pooler gets its rows' logits or hidden states.
  void add(const ScheduledSequence& scheduled, const BatchInput& input);

  RunnerStep step() const {
    return {{.token_ids = token_ids_,
             .sequences = sequences_,
             .logit_rows = logit_rows_,
             .precision = precision_,
             .hidden_rows = hidden_rows_,
             .adapters = has_adapters_ ? std::span<const Adapter* const>(adapters_)
                                       : std::span<const Adapter* const>()},
            choices_};
  }

 private:
  std::vector<int32_t> token_ids_, logit_rows_, hidden_rows_;
  std::vector<BatchSequence> sequences_;
  std::vector<RowChoice> choices_;
  std::vector<const Adapter*> adapters_;  // of each sequence
  bool has_adapters_ = false;
  std::optional<Precision> precision_;
};

}  // namespace halley
