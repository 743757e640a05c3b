// Computes log probabilities of one request's prompt tokens, from logits that arrive in chunks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/engine/engine.h"
#include "halley/sampling/base/sampler.h"

namespace halley {

/// Not thread-safe.
class PromptScorer {
 public:
  /// `num_top` is SamplingParams::num_prompt_logprobs: -1 scores nothing.
  PromptScorer(int num_top, std::span<const int32_t> prompt_ids);

  /// Whether the logits of all prompt rows but the last are needed.
  bool is_active() const { return num_top_ >= 0; }

  /// Rows [begin, end) of a sequence's part of a step.
  struct Rows {
    int64_t begin = 0, end = 0;
  };
  /// The rows of tokens [num_past, num_past + num_rows) whose logits score() will get, in order. To
  /// be called once for each step that is launched. Rows that were requested before a preemption
  /// are not requested again: their logits still arrive.
  Rows ask(int64_t num_past, int64_t num_rows);

  /// Takes the logits [V] of the next requested row. Returns false if one is NaN or +infinity, or
  /// all are -infinity.
  [[nodiscard]] bool score(std::span<const float> logits, SamplerScratch& scratch);

  /// One entry per prompt token, to be taken once after the last requested row; none if inactive.
  std::vector<PromptLogprob> take();

 private:
  int num_top_;
  std::vector<int32_t> prompt_ids_;  // empty if inactive
  int64_t num_asked_ = 0;            // tokens whose rows were requested
  std::vector<PromptLogprob> scored_;
  bool is_taken_ = false;
};

}  // namespace halley
