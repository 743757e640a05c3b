#include "halley/engine/forward_runner.h"

#include <algorithm>

#include "halley/base/check.h"

namespace halley {

HostSlot& ForwardRunner::slot(int32_t index) {
  std::optional<HostSlot>& slot = slots_.at(static_cast<size_t>(index));
  HALLEY_CHECK(slot.has_value(), index);
  return *slot;
}

void ForwardRunner::start_slot(int32_t slot, const TokenChoice& choice,
                               std::span<const int32_t> prompt_ids,
                               std::span<const int32_t> output_ids) {
  slots_.at(static_cast<size_t>(slot)).emplace(choice, prompt_ids, output_ids);
}

// Replaces slot_token(slot) by the token.
std::span<const int32_t> ForwardRunner::known_ids(std::span<const int32_t> token_ids) {
  token_ids_.assign(token_ids.begin(), token_ids.end());
  for (int32_t& id : token_ids_) {
    if (id < 0) id = slot(slot_of_token(id)).last_token();
  }
  return token_ids_;
}

void ForwardRunner::select_rows(const RunnerStep& step) {
  rows_.assign(step.batch.logit_rows.begin(), step.batch.logit_rows.end());
  for (const RowChoice& choice : step.choices) rows_.push_back(choice.row);
  std::sort(rows_.begin(), rows_.end());
  rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
}

std::span<const float> ForwardRunner::logits_of(int32_t row) const {
  const auto vocab_size = static_cast<size_t>(model_.shape().vocab_size);
  const auto index = std::lower_bound(rows_.begin(), rows_.end(), row) - rows_.begin();
  return std::span(logits_).subspan(static_cast<size_t>(index) * vocab_size, vocab_size);
}

// Moves the logits of the rows that the caller gets to the front.
void ForwardRunner::keep_wanted_rows(std::span<const int32_t> logit_rows) {
  auto to = logits_.begin();
  for (const int32_t row : logit_rows) {
    const std::span<const float> logits = logits_of(row);
    // Rows ascend, so that none moves behind its old place.
    if (&*to != logits.data()) std::copy(logits.begin(), logits.end(), to);
    to += static_cast<std::ptrdiff_t>(logits.size());
  }
  result_.logits = f32_matrix(logits_.data(), static_cast<int64_t>(logit_rows.size()),
                              model_.shape().vocab_size);
}

void ForwardRunner::launch(const RunnerStep& step, const KvCacheView& cache) {
  select_rows(step);
  const auto num_rows = static_cast<int64_t>(rows_.size());
  const int64_t vocab_size = model_.shape().vocab_size;
  const auto num_logits = static_cast<size_t>(num_rows * vocab_size);
  if (logits_.size() < num_logits) logits_.resize(num_logits);
  model_.forward(
      {known_ids(step.batch.token_ids), step.batch.sequences, rows_, step.batch.precision}, cache,
      f32_matrix(logits_.data(), num_rows, vocab_size));
  result_.chosen.clear();
  for (const RowChoice& choice : step.choices) {
    if (choice.is_deferred) {
      slot(choice.slot).defer(logits_of(choice.row));
    } else {
      result_.chosen.push_back(slot(choice.slot).choose(logits_of(choice.row), scratch_));
    }
  }
  keep_wanted_rows(step.batch.logit_rows);
}

void ForwardRunner::choose(std::span<const MaskedChoice> choices) {
  result_.chosen.clear();
  for (const MaskedChoice& choice : choices) {
    result_.chosen.push_back(slot(choice.slot).choose_deferred(*choice.allowed, scratch_));
  }
  result_.logits = f32_matrix(logits_.data(), 0, model_.shape().vocab_size);
}

}  // namespace halley
