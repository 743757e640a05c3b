// One step of the scheduler as the model takes it, and the logits that come out of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/engine/prompt_scorer.h"
#include "halley/engine/scheduler.h"
#include "halley/models/base/causal_lm.h"

namespace halley {

/// Keeps its memory from step to step. Not thread-safe.
class StepBatch {
 public:
  explicit StepBatch(int64_t vocab_size) : vocab_size_(vocab_size) {}

  void clear();
  /// Appends a sequence of the plan, given all of its tokens and which of its rows score its
  /// prompt.
  void add(const ScheduledSequence& scheduled, std::span<const int32_t> tokens,
           PromptScorer::Rows scored_rows);

  /// Runs the model. What the page tables refer to must still be there.
  void forward(CausalLm& model, const KvCacheView& cache);

  /// Logits [V] of the next row that was asked for: of each sequence in turn the scored rows, and
  /// the last where it is complete.
  std::span<const float> next_logits();
  /// Leaves out rows that nobody wants any more.
  void skip_logits(int64_t num_rows) { next_logit_row_ += num_rows; }

 private:
  int64_t vocab_size_;
  std::vector<int32_t> token_ids_, logit_rows_;
  std::vector<BatchSequence> sequences_;
  std::vector<float> logits_;  // [rows that were asked for, V]
  int64_t next_logit_row_ = 0;
};

}  // namespace halley
