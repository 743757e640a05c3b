#include <vector>

#include "halley/base/check.h"
#include "halley/kernels/base/row_tasks.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/kernels/kv/kv_rows.h"

namespace halley {
namespace {

size_t element_bytes(DType dtype) { return static_cast<size_t>(bits_of(dtype)) / 8; }

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
    store_kv_row(layout.dtype, k.row<float>(row) + column, head_dim,
                 page + layout.key_offset(head, slot));
    store_kv_row(layout.dtype, v.row<float>(row) + column, head_dim,
                 page + layout.value_offset(head, slot));
  }
}

}  // namespace

size_t KvPageLayout::head_bytes() const {
  return static_cast<size_t>(page_tokens * head_dim) * element_bytes(dtype);
}

size_t KvPageLayout::page_bytes() const {
  return 2 * static_cast<size_t>(num_kv_heads) * head_bytes();
}

size_t KvPageLayout::key_offset(int64_t kv_head, int64_t slot) const {
  return static_cast<size_t>((kv_head * page_tokens + slot) * head_dim) * element_bytes(dtype);
}

size_t KvPageLayout::value_offset(int64_t kv_head, int64_t slot) const {
  return key_offset(num_kv_heads + kv_head, slot);
}

void check_sequences(const KvLayerView& cache, std::span<const BatchSequence> sequences,
                     int64_t num_rows) {
  const KvPageLayout& layout = cache.layout;
  HALLEY_CHECK(
      layout.dtype == DType::kF32 || layout.dtype == DType::kF16 || layout.dtype == DType::kBf16,
      layout.dtype);
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
