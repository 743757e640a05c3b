#include <limits>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/kernels/base/row_tasks.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/kernels/kv/kv_rows.h"

namespace halley {
namespace {

constexpr size_t kScaleBytes = 4;

size_t row_index(const KvPageLayout& layout, int64_t kv_head, int64_t slot) {
  return static_cast<size_t>(kv_head * layout.page_tokens + slot);
}

size_t num_rows_of(const KvPageLayout& layout) {  // of a page
  return row_index(layout, 2 * layout.num_kv_heads, 0);
}

// Rows of odd sizes may end anywhere.
size_t scales_begin(const KvPageLayout& layout) {
  return round_up(num_rows_of(layout) * layout.row_bytes(), kScaleBytes);
}

void write_token(const KvLayerView& cache, const BatchSequence& sequence, int64_t token,
                 ConstMatrix k, ConstMatrix v) {
  const KvPageLayout& layout = cache.layout;
  const int64_t position = sequence.num_past_tokens + token;
  const int64_t slot = position % layout.page_tokens;
  const int32_t page_index =
      sequence.page_table[static_cast<size_t>(position / layout.page_tokens)];
  std::byte* page = cache.pages + static_cast<size_t>(page_index) * layout.page_bytes();
  const int64_t row = sequence.first_row + token;
  const auto head_dim = static_cast<size_t>(layout.head_dim);
  for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
    const int64_t column = head * layout.head_dim;
    store_kv_row(layout.dtype, k.row<float>(row) + column, head_dim, cache.scales.k,
                 layout.key_row(page, head, slot));
    store_kv_row(layout.dtype, v.row<float>(row) + column, head_dim, cache.scales.v,
                 layout.value_row(page, head, slot));
  }
}

bool is_usable_scale(float scale) {
  return scale >= 0 && scale <= std::numeric_limits<float>::max();
}

}  // namespace

size_t KvPageLayout::row_bytes() const {
  return ceil_div(static_cast<size_t>(head_dim) * static_cast<size_t>(bits_of(dtype)), size_t{8});
}

size_t KvPageLayout::scale_bytes() const { return has_scales(dtype) ? kScaleBytes : 0; }

size_t KvPageLayout::page_bytes() const {
  const size_t num_rows = num_rows_of(*this);
  if (!has_scales(dtype)) return num_rows * row_bytes();
  return scales_begin(*this) + num_rows * kScaleBytes;
}

size_t KvPageLayout::token_bytes() const {
  return 2 * static_cast<size_t>(num_kv_heads) * (row_bytes() + scale_bytes());
}

size_t KvPageLayout::key_offset(int64_t kv_head, int64_t slot) const {
  return row_index(*this, kv_head, slot) * row_bytes();
}

size_t KvPageLayout::value_offset(int64_t kv_head, int64_t slot) const {
  return key_offset(num_kv_heads + kv_head, slot);
}

size_t KvPageLayout::key_scale_offset(int64_t kv_head, int64_t slot) const {
  HALLEY_DCHECK(has_scales(dtype), dtype);
  return scales_begin(*this) + row_index(*this, kv_head, slot) * kScaleBytes;
}

size_t KvPageLayout::value_scale_offset(int64_t kv_head, int64_t slot) const {
  return key_scale_offset(num_kv_heads + kv_head, slot);
}

KvRow KvPageLayout::key_row(std::byte* page, int64_t kv_head, int64_t slot) const {
  return {page + key_offset(kv_head, slot),
          has_scales(dtype) ? page + key_scale_offset(kv_head, slot) : nullptr};
}

KvRow KvPageLayout::value_row(std::byte* page, int64_t kv_head, int64_t slot) const {
  return key_row(page, num_kv_heads + kv_head, slot);
}

void check_sequences(const KvLayerView& cache, std::span<const BatchSequence> sequences,
                     int64_t num_rows) {
  const KvPageLayout& layout = cache.layout;
  HALLEY_CHECK(is_usable_scale(cache.scales.k) && is_usable_scale(cache.scales.v), cache.scales.k,
               cache.scales.v);
  HALLEY_CHECK(layout.num_kv_heads >= 1 && layout.head_dim >= 1 && layout.page_tokens >= 1,
               layout.num_kv_heads, layout.head_dim, layout.page_tokens);
  for (const BatchSequence& sequence : sequences) {
    HALLEY_CHECK(sequence.num_new_tokens >= 1 && sequence.num_past_tokens >= 0,
                 sequence.num_new_tokens, sequence.num_past_tokens);
    HALLEY_CHECK(
        sequence.first_row >= 0 && sequence.first_row + sequence.num_new_tokens <= num_rows,
        sequence.first_row, sequence.num_new_tokens, num_rows);
    const int64_t num_tokens = sequence.num_past_tokens + sequence.num_new_tokens;
    const int64_t num_pages = ceil_div(num_tokens, layout.page_tokens);
    HALLEY_CHECK(static_cast<int64_t>(sequence.page_table.size()) >= num_pages,
                 sequence.page_table.size(), num_pages);
    for (int64_t i = 0; i < num_pages; ++i) {
      const int32_t page = sequence.page_table[static_cast<size_t>(i)];
      HALLEY_CHECK(page >= 0 && page < cache.num_pages, page, cache.num_pages);
    }
  }
}

void write_kv(ExecContext& context, const KvLayerView& cache,
              std::span<const BatchSequence> sequences, ConstMatrix k, ConstMatrix v) {
  check_sequences(cache, sequences, k.num_rows);
  const int64_t num_columns = cache.layout.num_kv_heads * cache.layout.head_dim;
  HALLEY_CHECK(k.num_cols == num_columns && v.num_cols == num_columns && v.num_rows == k.num_rows,
               k.num_cols, v.num_cols, num_columns, k.num_rows, v.num_rows);
  struct Token {
    const BatchSequence* sequence;
    int64_t index;
  };
  std::vector<Token> tokens;
  tokens.reserve(static_cast<size_t>(k.num_rows));
  for (const BatchSequence& sequence : sequences) {
    for (int64_t i = 0; i < sequence.num_new_tokens; ++i) tokens.push_back({&sequence, i});
  }
  for_row_ranges(context, static_cast<int64_t>(tokens.size()), 2 * num_columns,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const Token& token = tokens[static_cast<size_t>(i)];
                     write_token(cache, *token.sequence, token.index, k, v);
                   }
                 });
}

}  // namespace halley
