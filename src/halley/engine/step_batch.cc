#include "halley/engine/step_batch.h"

#include "halley/base/check.h"

namespace halley {

void StepBatch::clear(std::optional<Precision> precision) {
  precision_ = precision;
  token_ids_.clear();
  logit_rows_.clear();
  hidden_rows_.clear();
  sequences_.clear();
  choices_.clear();
  adapters_.clear();
  has_adapters_ = false;
}

void StepBatch::add(const ScheduledSequence& scheduled, const BatchInput& input) {
  const auto first_row = static_cast<int64_t>(token_ids_.size());
  sequences_.push_back({.first_row = first_row,
                        .num_new_tokens = scheduled.num_rows,
                        .num_past_tokens = scheduled.num_past,
                        .page_table = scheduled.page_table});
  adapters_.push_back(input.adapter);
  has_adapters_ = has_adapters_ || input.adapter != nullptr;
  for (int64_t i = scheduled.num_past; i < scheduled.num_past + scheduled.num_rows; ++i) {
    const auto index = static_cast<size_t>(i);
    HALLEY_CHECK(index < input.tokens.size() || input.slot, index, input.tokens.size());
    token_ids_.push_back(index < input.tokens.size() ? input.tokens[index]
                                                     : slot_token(*input.slot));
  }
  for (int64_t row = input.scored_rows.begin; row < input.scored_rows.end; ++row) {
    logit_rows_.push_back(static_cast<int32_t>(first_row + row));
  }
  if (input.pooler != nullptr) {
    const bool needs_hidden = input.pooler->pooling().needs_hidden_states();
    std::vector<int32_t>& rows = needs_hidden ? hidden_rows_ : logit_rows_;
    for (int64_t row = input.pooled_rows.begin; row < input.pooled_rows.end; ++row) {
      rows.push_back(static_cast<int32_t>(first_row + row));
    }
    return;
  }
  if (!scheduled.is_complete) return;
  const auto last_row = static_cast<int32_t>(first_row + scheduled.num_rows - 1);
  HALLEY_CHECK(input.slot.has_value(), last_row);
  choices_.push_back(
      {.row = last_row, .slot = *input.slot, .is_deferred = input.is_choice_deferred});
}

}  // namespace halley
