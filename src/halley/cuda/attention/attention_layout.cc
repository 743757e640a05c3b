#include "halley/cuda/attention/attention_layout.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numbers>

#include "halley/cuda/attention/attention_plan.h"

namespace halley::attention {

PagedRows paged_rows(const AttentionProblem& problem, const KvLayerView& cache) {
  const KvPageLayout& layout = cache.layout;
  PagedRows rows;
  rows.pages = cache.pages;
  rows.page_bytes = static_cast<int64_t>(layout.page_bytes());
  rows.value_bytes = static_cast<int64_t>(layout.value_offset(0, 0) - layout.key_offset(0, 0));
  if (has_scales(layout.dtype)) {
    rows.scale_bytes = static_cast<int64_t>(layout.key_scale_offset(0, 0));
    rows.value_scale_bytes =
        static_cast<int64_t>(layout.value_scale_offset(0, 0)) - rows.scale_bytes;
  }
  rows.row_bytes = static_cast<int>(layout.row_bytes());
  rows.page_tokens = static_cast<int>(layout.page_tokens);
  rows.copy_bytes = copy_bytes(layout);
  rows.head_dim = static_cast<int>(layout.head_dim);
  rows.num_kv_heads = static_cast<int>(layout.num_kv_heads);
  rows.group_size = static_cast<int>(problem.num_heads / layout.num_kv_heads);
  const bool has_runs =
      rows.page_tokens % 16 == 0 && std::has_single_bit(static_cast<unsigned>(rows.page_tokens));
  rows.is_bulk =
      rows.copy_bytes == 16 && has_runs && rows.head_dim == padded_head_dim(rows.head_dim);
  return rows;
}

ScoreRule score_rule(const AttentionProblem& problem) {
  ScoreRule rule;
  rule.scale = problem.soft_cap > 0 ? problem.scale : problem.scale * std::numbers::log2e_v<float>;
  rule.soft_cap = problem.soft_cap;
  rule.window =
      static_cast<int>(std::min<int64_t>(problem.window, std::numeric_limits<int32_t>::max() / 2));
  return rule;
}

}  // namespace halley::attention
