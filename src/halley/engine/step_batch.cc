#include "halley/engine/step_batch.h"

#include "halley/base/check.h"

namespace halley {

void StepBatch::clear() {
  token_ids_.clear();
  logit_rows_.clear();
  sequences_.clear();
  next_logit_row_ = 0;
}

void StepBatch::add(const ScheduledSequence& scheduled, std::span<const int32_t> tokens,
                    PromptScorer::Rows scored_rows) {
  const auto first_row = static_cast<int64_t>(token_ids_.size());
  sequences_.push_back({.first_row = first_row,
                        .num_new_tokens = scheduled.num_rows,
                        .num_past_tokens = scheduled.num_past,
                        .page_table = scheduled.page_table});
  const std::span<const int32_t> added = tokens.subspan(static_cast<size_t>(scheduled.num_past),
                                                        static_cast<size_t>(scheduled.num_rows));
  token_ids_.insert(token_ids_.end(), added.begin(), added.end());
  for (int64_t row = scored_rows.begin; row < scored_rows.end; ++row) {
    logit_rows_.push_back(static_cast<int32_t>(first_row + row));
  }
  if (scheduled.is_complete) {
    logit_rows_.push_back(static_cast<int32_t>(first_row + scheduled.num_rows - 1));
  }
}

void StepBatch::forward(CausalLm& model, const KvCacheView& cache) {
  const auto num_rows = static_cast<int64_t>(logit_rows_.size());
  const auto num_logits = static_cast<size_t>(num_rows * vocab_size_);
  if (logits_.size() < num_logits) logits_.resize(num_logits);
  model.forward({token_ids_, sequences_, logit_rows_}, cache,
                f32_matrix(logits_.data(), num_rows, vocab_size_));
}

std::span<const float> StepBatch::next_logits() {
  HALLEY_CHECK(next_logit_row_ < static_cast<int64_t>(logit_rows_.size()), next_logit_row_);
  return {logits_.data() + next_logit_row_++ * vocab_size_, static_cast<size_t>(vocab_size_)};
}

}  // namespace halley
