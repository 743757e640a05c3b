// One step of the scheduler as a model takes it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "halley/engine/prompt_scorer.h"
#include "halley/engine/scheduler.h"
#include "halley/models/base/step_runner.h"

namespace halley {

/// What the scheduler does not know of a sequence in a step.
struct BatchInput {
  std::span<const int32_t> tokens;      // all that are known
  PromptScorer::Rows scored_rows = {};  // of its rows those that score its prompt
  std::optional<int32_t> slot = {};  // where the model chooses: it has the token that is not known
};

/// Keeps its memory from step to step. Not thread-safe.
class StepBatch {
 public:
  void clear();

  /// Appends a sequence of the plan. The page table must be there until the step is launched.
  /// Logits come for the scored rows and, where the sequence is complete and has no slot, for its
  /// last row behind them; where it has one, its last row is a choice.
  void add(const ScheduledSequence& scheduled, const BatchInput& input);

  RunnerStep step() const { return {{token_ids_, sequences_, logit_rows_}, choices_}; }

 private:
  std::vector<int32_t> token_ids_, logit_rows_;
  std::vector<BatchSequence> sequences_;
  std::vector<RowChoice> choices_;
};

}  // namespace halley
