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
  scored_.reserve(prompt_ids_.size());
  scored_.push_back({.token_id = prompt_ids_.front(), .logprob = {}, .top = {}});
  num_asked_ = 1;
}

PromptScorer::Rows PromptScorer::ask(int64_t num_past, int64_t num_rows) {
  const auto num_tokens = static_cast<int64_t>(prompt_ids_.size());
  if (num_asked_ == num_tokens) return {};
  // The row of token i scores token i + 1.
  const int64_t begin = num_asked_ - 1;
  HALLEY_CHECK(num_past <= begin, num_past, begin);
  const int64_t end = std::max(begin, std::min(num_past + num_rows, num_tokens - 1));
  num_asked_ = end + 1;
  return {begin - num_past, end - num_past};
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
