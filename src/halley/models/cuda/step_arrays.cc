#include "halley/models/cuda/step_arrays.h"

#include <algorithm>

#include "halley/base/check.h"

namespace halley::cuda {

void fill_arrays(const ForwardBatch& batch, std::span<const int32_t> logit_rows,
                 const KvPageLayout& layout, int64_t position_offset, const StepSize& size,
                 std::byte* arrays) {
  const auto num_rows = static_cast<int64_t>(batch.token_ids.size());
  HALLEY_CHECK(num_rows <= size.num_rows, num_rows, size.num_rows);
  HALLEY_CHECK(static_cast<int64_t>(logit_rows.size()) == size.num_logit_rows, logit_rows.size());
  const ArrayPlan plan = plan_arrays(size);
  auto* kv_slots = reinterpret_cast<int64_t*>(arrays + plan.kv_slots);
  auto* token_ids = reinterpret_cast<int32_t*>(arrays + plan.token_ids);
  auto* positions = reinterpret_cast<int32_t*>(arrays + plan.positions);
  auto* position_rows = reinterpret_cast<int32_t*>(arrays + plan.position_rows);
  std::copy(batch.token_ids.begin(), batch.token_ids.end(), token_ids);
  std::fill(token_ids + num_rows, token_ids + size.num_rows, 0);
  int64_t row = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    for (int64_t i = 0; i < sequence.num_new_tokens; ++i, ++row) {
      const int64_t position = sequence.num_past_tokens + i;
      const int64_t page = sequence.page_table[static_cast<size_t>(position / layout.page_tokens)];
      kv_slots[row] = page * layout.page_tokens + position % layout.page_tokens;
      positions[row] = static_cast<int32_t>(position);
    }
  }
  for (; row < size.num_rows; ++row) {
    kv_slots[row] = -1;
    positions[row] = 0;
  }
  for (int64_t m = 0; m < size.num_rows; ++m) {
    position_rows[m] = positions[m] + static_cast<int32_t>(position_offset);
  }
  std::copy(logit_rows.begin(), logit_rows.end(),
            reinterpret_cast<int32_t*>(arrays + plan.logit_rows));
}

}  // namespace halley::cuda
