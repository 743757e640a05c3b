// Split-KV and tile schedule of a batch's attention: how it is cut into work items. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/cuda/attention/attention_items.h"
#include "halley/kernels/attention/attention.h"
#include "halley/kernels/kv/kv_cache_view.h"

namespace halley {

/// Largest number of query heads of one kv head that a decode work item has: 8, or 16 where the
/// group needs them and the kernel has the registers. Every item of a kv head reads its keys and
/// values.
constexpr int decode_rows(int64_t group_size, int64_t head_dim) {
  return group_size > 8 && padded_head_dim(head_dim) == 128 ? 16 : 8;
}

/// Kv heads times the tiles of query heads in each.
int64_t num_decode_units(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim);

struct AttentionPlan {
  std::vector<DecodeItem> decode_items;    // sequences with one new token, longest first
  std::vector<PrefillItem> prefill_items;  // the others, longest first
  int64_t num_partials = 0;                // splits of sequences that have more than one
};

/// Positions of a split for a row that attends to `num_visible` positions: a power of two. Short
/// rows get shorter splits, so that a single sequence occupies many SMs. The rest of the batch does
/// not matter.
int64_t split_tokens(int64_t num_visible);

/// How the decodes of a batch are cut.
struct DecodeSplit {
  int64_t tokens = 0;             // positions of a split, a power of two
  bool is_warp_per_item = false;  // each warp takes items of its own, not each CTA
};

/// The cut where the batch decides: that with which `num_ctas` CTAs finish soonest, by a cost model
/// measured on an H200. `position_bytes`: bytes of a position's key and value in one kv head.
DecodeSplit choose_decode_split(const AttentionProblem& problem, int64_t num_units,
                                int64_t position_bytes, int64_t num_ctas,
                                std::span<const BatchSequence> sequences);

/// Boundaries of the splits of a row at `position`: the first begin, all inner boundaries, the last
/// end. Inner boundaries are multiples of `chosen`, and the last split has at least half of it. 0:
/// split_tokens() chooses.
std::vector<int64_t> split_boundaries(const AttentionProblem& problem, int64_t position,
                                      int64_t chosen = 0);

/// Sequence i's page table is expected at i * table_stride. The plan reads no pages.
/// `rows_per_item` is the query tile of the prefill kernel, `chosen_split` the `chosen` of
/// split_boundaries(). Ends the process for sizes above 2^31 - 1.
AttentionPlan plan_attention(const AttentionProblem& problem, int64_t num_kv_heads,
                             int64_t table_stride, int64_t rows_per_item,
                             std::span<const BatchSequence> sequences, int64_t chosen_split = 0);

/// Upper bound on the decode items of any batch of `num_sequences` with `num_tokens` positions in
/// all.
int64_t num_decode_items_max(int64_t num_sequences, int64_t num_tokens);

/// Bytes of the widest copies that the pages allow: 16, 8 or 4. Rows start at multiples of it.
int copy_bytes(const KvPageLayout& layout);

/// Empty if the kernels support the problem, else the reason: "head_dim 17 is not a multiple of 8".
std::string why_not_cuda_attention(const AttentionProblem& problem, const KvPageLayout& layout,
                                   DType activation_dtype);

}  // namespace halley
