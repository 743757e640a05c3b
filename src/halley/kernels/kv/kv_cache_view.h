// The paged KV cache as kernels see it, and the kernel that writes new tokens into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/kernels/kv/kv_dtype.h"

namespace halley {

/// A token's key or value of one head in a page.
struct KvRow {
  std::byte* data = nullptr;
  std::byte* scale = nullptr;  // null for types that have none
};

/// One page holds P tokens of one layer for all its kv heads. A row is the key or the value of one
/// token and head: D elements, in whole bytes.
///
///     keys        rows [J, P]
///     values      rows [J, P]
///     key scales    4 bytes [J, P]   int8, int4, fp8 only; from a multiple of 4 bytes on
///     value scales  4 bytes [J, P]
///
///     type             an element is          4 bytes of the row
///     f32, f16, bf16   itself                 -
///     int8             q * scale + zero       f16 scale, f16 zero
///     int4             q * scale + zero       f16 scale, f16 zero
///     fp8              e4m3(q) * scale        f32 scale
///
/// q of int8 and int4 is unsigned. int4 has element 2i in the low half of byte i and element 2i + 1
/// in the high half; with D odd, the last half byte is 0. "zero" is the value of q = 0, about the
/// row's minimum, not a quantized value: so a row far from 0 loses nothing.
struct KvPageLayout {
  KvDType dtype = KvDType::kF16;
  int64_t num_kv_heads = 0;  // J
  int64_t head_dim = 0;      // D
  int64_t page_tokens = 16;  // P

  bool operator==(const KvPageLayout&) const = default;

  size_t row_bytes() const;    // without scale
  size_t scale_bytes() const;  // of a row: 4 or 0
  size_t page_bytes() const;
  size_t token_bytes() const;  // keys, values and scales of one token in all heads

  /// Bytes from a page's start to the key, or the value, of one head at a slot of the page. The
  /// next slot's follows.
  size_t key_offset(int64_t kv_head, int64_t slot) const;
  size_t value_offset(int64_t kv_head, int64_t slot) const;

  /// The same for the rows' scales. Requires a type that has them.
  size_t key_scale_offset(int64_t kv_head, int64_t slot) const;
  size_t value_scale_offset(int64_t kv_head, int64_t slot) const;

  KvRow key_row(std::byte* page, int64_t kv_head, int64_t slot) const;
  KvRow value_row(std::byte* page, int64_t kv_head, int64_t slot) const;
};

/// Scales of a layer's keys and values in an fp8 cache, as a checkpoint may have them. 0: each row
/// gets its own.
struct KvScales {
  float k = 0;
  float v = 0;

  bool operator==(const KvScales&) const = default;
};

/// All pages of one layer: page i starts at pages + i * layout.page_bytes().
struct KvLayerView {
  KvPageLayout layout;
  std::byte* pages = nullptr;
  int64_t num_pages = 0;
  KvScales scales = {};  // looked at by fp8 alone
};

/// One sequence's part of a ragged batch: its new tokens are consecutive rows of the batch.
struct BatchSequence {
  int64_t first_row = 0;        // of this sequence's new tokens in the batch
  int64_t num_new_tokens = 0;   // >= 1: a prefill chunk, or 1 for a decode
  int64_t num_past_tokens = 0;  // already in the cache; the new ones follow at this position
  std::span<const int32_t> page_table;  // page of token t: page_table[t / P]; covers all tokens
};

/// Ends the process unless layout and scales are usable and every sequence has rows in [0,
/// num_rows), a page for every token, and no page outside the cache: all of it is the caller's own
/// doing.
void check_sequences(const KvLayerView& cache, std::span<const BatchSequence> sequences,
                     int64_t num_rows);

/// Stores keys and values of all new tokens. Rounding to the cache's type is to nearest even.
///
/// Shapes    k, v [M, J * D] f32
/// int8, int4  zero = the largest f16 <= the row's minimum; scale = the smallest f16 >= (maximum -
///           zero) / (2^bits - 1), at least 2^-24; q = round((x - zero) / scale). The error is at
///           most scale / 2; a row of equal f16 values, zeros too, is exact. Values beyond +-65504
///           count as +-65504
/// fp8       scale = the layer's, or else the row's largest magnitude / 448 (in f32, at least
///           2^-126); q = x / scale in e4m3, beyond 448 it is that of 448
/// Both      a row with NaN or infinity gets the scale NaN: nothing that was computed from it can
///           pass for a number
/// Writes    the slots of the new tokens in the sequences' pages, nothing else
void write_kv(ExecContext& context, const KvLayerView& cache,
              std::span<const BatchSequence> sequences, ConstMatrix k, ConstMatrix v);

}  // namespace halley
