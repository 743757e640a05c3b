#include "halley/engine/prompt_scorer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "halley/base/check.h"

namespace halley {

PromptScorer::PromptScorer(int num_top, std::span<const int32_t> prompt_ids) : num_top_(num_top) {
  if (!is_active()) return;
  prompt_ids_.assign(prompt_ids.begin(), prompt_ids.end());
  scored_.push_back({.token_id = prompt_ids_.front(), .logprob = {}, .top = {}});
}

PromptScorer::Rows PromptScorer::wanted_rows(int64_t num_past, int64_t num_rows) const {
  if (!is_active() || is_taken_) return {};
  // The row of token i scores token i + 1, and scored_.size() tokens are scored.
  const int64_t next = static_cast<int64_t>(scored_.size()) - 1;
  HALLEY_CHECK(num_past <= next, num_past, next);
  const int64_t end =
      std::min(num_past + num_rows, static_cast<int64_t>(prompt_ids_.size()) - 1) - num_past;
  return {next - num_past, std::max(end, next - num_past)};
}

bool PromptScorer::score(std::span<const float> logits, SamplerScratch& scratch) {
  for (const float logit : logits) {
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) return false;
  }
  const int32_t token_id = prompt_ids_[scored_.size()];
  const float logprob = logprob_of(logits, token_id).logprob;
  if (std::isnan(logprob)) return false;
  scored_.push_back(
      {.token_id = token_id, .logprob = logprob, .top = top_logprobs(logits, num_top_, scratch)});
  return true;
}

std::vector<PromptLogprob> PromptScorer::take() {
  if (!is_active() || is_taken_) return {};
  HALLEY_CHECK(scored_.size() == prompt_ids_.size(), scored_.size(), prompt_ids_.size());
  is_taken_ = true;
  return std::move(scored_);
}

}  // namespace halley
