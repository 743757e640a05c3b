#include "halley/engine/forward_runner.h"

#include "halley/base/check.h"

namespace halley {

void ForwardRunner::start_slot(int32_t slot, const TokenChoice&, std::span<const int32_t>,
                               std::span<const int32_t>) {
  check_failed("a model that chooses", str("slot ", slot), __FILE__, __LINE__);
}

void ForwardRunner::launch(const RunnerStep& step, const KvCacheView& cache) {
  HALLEY_CHECK(step.choices.empty(), step.choices.size());
  const auto num_rows = static_cast<int64_t>(step.batch.logit_rows.size());
  const int64_t vocab_size = model_.shape().vocab_size;
  const auto num_logits = static_cast<size_t>(num_rows * vocab_size);
  if (logits_.size() < num_logits) logits_.resize(num_logits);
  const Matrix logits = f32_matrix(logits_.data(), num_rows, vocab_size);
  model_.forward(step.batch, cache, logits);
  result_.logits = logits;
}

}  // namespace halley
