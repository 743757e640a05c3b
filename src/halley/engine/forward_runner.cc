#include "halley/engine/forward_runner.h"

#include <algorithm>
#include <utility>

#include "halley/base/check.h"

namespace halley {
namespace {

/// The rows whose logits the caller gets or a token is chosen from, ascending.
std::vector<int32_t> rows_of(const RunnerStep& step) {
  std::vector<int32_t> rows(step.batch.logit_rows.begin(), step.batch.logit_rows.end());
  for (const RowChoice& choice : step.choices) rows.push_back(choice.row);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace

const ForwardRunner::SlotPtr& ForwardRunner::slot(int32_t index) const {
  const SlotPtr& slot = slots_.at(static_cast<size_t>(index));
  HALLEY_CHECK(slot != nullptr, index);
  return slot;
}

void ForwardRunner::start_slot(int32_t slot, const TokenChoice& choice,
                               std::span<const int32_t> prompt_ids,
                               std::span<const int32_t> output_ids) {
  slots_.at(static_cast<size_t>(slot)) = std::make_shared<HostSlot>(choice, prompt_ids, output_ids);
}

// Replaces slot_token(slot) by the token.
std::span<const int32_t> ForwardRunner::known_ids(std::span<const int32_t> token_ids) {
  token_ids_.assign(token_ids.begin(), token_ids.end());
  for (int32_t& id : token_ids_) {
    if (id < 0) id = slot(slot_of_token(id))->last_token();
  }
  return token_ids_;
}

Matrix ForwardRunner::logits_for(const Flight& flight) {
  const auto num_rows = static_cast<int64_t>(flight.rows.size());
  const int64_t vocab_size = model_.shape().vocab_size;
  const auto num_logits = static_cast<size_t>(num_rows * vocab_size);
  if (logits_.size() < num_logits) logits_.resize(num_logits);
  return f32_matrix(logits_.data(), num_rows, vocab_size);
}

Matrix ForwardRunner::hidden_for(const Flight& flight) {
  const int64_t hidden_size = model_.shape().hidden_size;
  const auto num_values = static_cast<size_t>(flight.num_hidden_rows * hidden_size);
  if (hidden_.size() < num_values) hidden_.resize(num_values);
  return f32_matrix(hidden_.data(), flight.num_hidden_rows, hidden_size);
}

std::span<const float> ForwardRunner::logits_of(const Flight& flight, int32_t row) const {
  const auto vocab_size = static_cast<size_t>(model_.shape().vocab_size);
  const auto& rows = flight.rows;
  const auto index = std::lower_bound(rows.begin(), rows.end(), row) - rows.begin();
  return std::span(logits_).subspan(static_cast<size_t>(index) * vocab_size, vocab_size);
}

// Moves the logits of the rows that the caller gets to the front.
void ForwardRunner::keep_wanted_rows(const Flight& flight) {
  auto to = logits_.begin();
  for (const int32_t row : flight.wanted_rows) {
    const std::span<const float> logits = logits_of(flight, row);
    // Rows ascend, so that none moves behind its old place.
    if (&*to != logits.data()) std::copy(logits.begin(), logits.end(), to);
    to += static_cast<std::ptrdiff_t>(logits.size());
  }
  result_.logits = f32_matrix(logits_.data(), static_cast<int64_t>(flight.wanted_rows.size()),
                              model_.shape().vocab_size);
}

void ForwardRunner::launch(const RunnerStep& step, const KvCacheView& cache) {
  Flight flight;
  flight.is_step = true;
  flight.rows = rows_of(step);
  flight.wanted_rows.assign(step.batch.logit_rows.begin(), step.batch.logit_rows.end());
  for (const RowChoice& choice : step.choices) {
    flight.choices.push_back({slot(choice.slot), choice.row, choice.is_deferred});
  }
  flight.num_hidden_rows = static_cast<int64_t>(step.batch.hidden_rows.size());
  HALLEY_CHECK(flight.num_hidden_rows == 0 || model_.num_stages() == 1, model_.num_stages());
  const ForwardBatch batch = {.token_ids = known_ids(step.batch.token_ids),
                              .sequences = step.batch.sequences,
                              .logit_rows = flight.rows,
                              .precision = step.batch.precision,
                              .hidden_rows = step.batch.hidden_rows,
                              .hidden = hidden_for(flight),
                              .adapters = step.batch.adapters};
  if (model_.num_stages() > 1) {
    model_.begin(batch, cache);
  } else {
    model_.forward(batch, cache, logits_for(flight));
  }
  flights_.push_back(std::move(flight));
}

void ForwardRunner::choose(std::span<const MaskedChoice> choices) {
  Flight& flight = flights_.emplace_back();
  for (const MaskedChoice& choice : choices) {
    flight.masked.push_back({slot(choice.slot), *choice.allowed});
  }
}

void ForwardRunner::choose_tokens(const Flight& flight) {
  result_.chosen.clear();
  for (const Choice& choice : flight.choices) {
    const std::span<const float> logits = logits_of(flight, choice.row);
    if (choice.is_deferred) {
      choice.slot->defer(logits);
    } else {
      result_.chosen.push_back(choice.slot->choose(logits, scratch_));
    }
  }
  for (const Masked& choice : flight.masked) {
    result_.chosen.push_back(choice.slot->choose_deferred(choice.allowed, scratch_));
  }
}

const StepResult& ForwardRunner::wait() {
  HALLEY_CHECK(!flights_.empty());
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  if (model_.num_stages() > 1 && flight.is_step) model_.finish(logits_for(flight));
  choose_tokens(flight);
  keep_wanted_rows(flight);
  result_.hidden = hidden_for(flight);
  return result_;
}

}  // namespace halley
