#include "halley/engine/pooler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "halley/base/check.h"

namespace halley {

Pooler::Pooler(Pooling pooling, int64_t num_prompt_tokens)
    : pooling_(std::move(pooling)),
      num_prompt_tokens_(num_prompt_tokens),
      num_wanted_(pooling_.needs_all_rows() ? num_prompt_tokens : 1),
      num_asked_(num_prompt_tokens - num_wanted_) {
  HALLEY_CHECK(num_prompt_tokens >= 1, num_prompt_tokens);
}

Pooler::Rows Pooler::ask(int64_t num_past, int64_t num_rows) {
  const int64_t end = std::min(num_past + num_rows, num_prompt_tokens_);
  if (end <= num_asked_) return {};
  const int64_t begin = std::exchange(num_asked_, end);
  // The rows before are not wanted, or were requested by an earlier step.
  HALLEY_CHECK(num_past <= begin || !pooling_.needs_all_rows(), num_past, begin);
  return {begin - num_past, end - num_past};
}

bool Pooler::add(std::span<const float> row) {
  HALLEY_CHECK(!is_complete(), num_added_);
  const bool is_of_tokens = pooling_.kind == Pooling::Kind::kTokenLogits;
  const size_t size = is_of_tokens ? pooling_.token_ids.size() : row.size();
  sums_.resize(size, 0.0);
  for (size_t i = 0; i < size; ++i) {
    const float value = row[is_of_tokens ? static_cast<size_t>(pooling_.token_ids[i]) : i];
    if (!std::isfinite(value)) return false;
    sums_[i] += value;
  }
  ++num_added_;
  return true;
}

std::vector<float> Pooler::take() {
  HALLEY_CHECK(is_complete(), num_added_);
  std::vector<float> means;
  means.reserve(sums_.size());
  for (const double sum : std::exchange(sums_, {})) {
    means.push_back(static_cast<float>(sum / static_cast<double>(num_wanted_)));
  }
  return means;
}

}  // namespace halley
