// The paged KV cache as kernels see it, and the kernel that writes new tokens into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "halley/core/dtype.h"
#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"

namespace halley {

/// One page holds P tokens of one layer for all its kv heads: keys [J, P, D], then values
/// [J, P, D], D fastest. Element types: f32, f16, bf16.
struct KvPageLayout {
  DType dtype = DType::kF16;
  int64_t num_kv_heads = 0;  // J
  int64_t head_dim = 0;      // D
  int64_t page_tokens = 16;  // P

  size_t head_bytes() const;  // [P, D] of one head, keys or values
  size_t page_bytes() const;  // keys and values of all heads

  /// Bytes from a page's start to the key, or the value, of one head at a slot of the page.
  size_t key_offset(int64_t kv_head, int64_t slot) const;
  size_t value_offset(int64_t kv_head, int64_t slot) const;
};

/// All pages of one layer: page i starts at pages + i * layout.page_bytes().
struct KvLayerView {
  KvPageLayout layout;
  std::byte* pages = nullptr;
  int64_t num_pages = 0;
};

/// One sequence's part of a ragged batch: its new tokens are consecutive rows of the batch.
struct BatchSequence {
  int64_t first_row = 0;        // of this sequence's new tokens in the batch
  int64_t num_new_tokens = 0;   // >= 1: a prefill chunk, or 1 for a decode
  int64_t num_past_tokens = 0;  // already in the cache; the new ones follow at this position
  std::span<const int32_t> page_table;  // page of token t: page_table[t / P]; covers all tokens
};

/// Ends the process unless the layout is usable and every sequence has rows in [0, num_rows), a
/// page for every token, and no page outside the cache: all of it is the caller's own doing.
void check_sequences(const KvLayerView& cache, std::span<const BatchSequence> sequences,
                     int64_t num_rows);

/// Stores keys and values of all new tokens. Rounding to the cache's type is to nearest even.
/// Shapes    k, v [M, J * D] f32
/// Writes    the slots of the new tokens in the sequences' pages, nothing else
void write_kv(ExecContext& context, const KvLayerView& cache,
              std::span<const BatchSequence> sequences, ConstMatrix k, ConstMatrix v);

}  // namespace halley
