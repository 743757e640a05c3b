// Log probabilities of one request's prompt tokens, from logits that come in chunks.
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

  /// The prompt's logits are needed, those of all its rows but the last.
  bool is_active() const { return num_top_ >= 0; }

  /// Rows [begin, end) of a step's, counted from its first.
  struct Rows {
    int64_t begin = 0, end = 0;
  };
  /// Those of tokens [num_past, num_past + num_rows) whose logits score() will get, in order; to be
  /// asked once for each step that is launched. What was asked for before a preemption is not
  /// wanted again: its logits still come.
  Rows ask(int64_t num_past, int64_t num_rows);

  /// The logits [V] of the next wanted row. False: one is NaN or +infinity, or all are -infinity.
  [[nodiscard]] bool score(std::span<const float> logits, SamplerScratch& scratch);

  /// One entry a prompt token, to be taken once after the last wanted row; none where inactive.
  std::vector<PromptLogprob> take();

 private:
  int num_top_;
  std::vector<int32_t> prompt_ids_;  // empty where inactive
  int64_t num_asked_ = 0;            // tokens whose logits have come or will
  std::vector<PromptLogprob> scored_;
  bool is_taken_ = false;
};

}  // namespace halley
