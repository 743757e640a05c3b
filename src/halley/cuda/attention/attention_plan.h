// How the attention of a batch is cut into pieces of work for the GPU. Pure functions.
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

/// Query heads of a kv head that one piece of a decode's work has at most: 8, or 16 where they are
/// needed and the kernel has registers for them. All of a kv head's pieces read its keys and
/// values.
constexpr int decode_rows(int64_t group_size, int64_t head_dim) {
  return group_size > 8 && padded_head_dim(head_dim) == 128 ? 16 : 8;
}

/// Kv heads times their blocks of query heads.
int64_t num_decode_units(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim);

struct AttentionPlan {
  std::vector<DecodeItem> decode_items;    // sequences with one new token, longest first
  std::vector<PrefillItem> prefill_items;  // the others, longest first
  int64_t num_partials = 0;                // splits of sequences that have more than one
};

/// Positions of a split for a row that sees `num_visible` positions: a power of two. Short rows are
/// cut finer, so that a single sequence feeds many SMs; what else is in the batch is no
/// part of it.
int64_t split_tokens(int64_t num_visible);

/// The same where the batch may decide: the power of two with which `num_blocks` blocks are done
/// soonest, by what pieces took on an H200. `position_bytes`: of a position's key and value in one
/// kv head.
int64_t choose_split_tokens(const AttentionProblem& problem, int64_t num_units,
                            int64_t position_bytes, int64_t num_blocks,
                            std::span<const BatchSequence> sequences);

/// The positions of splits of a row at `position`: first begin, all further boundaries, last end.
/// Boundaries are multiples of `chosen`, and the last split is no shorter than half of it; 0: of
/// split_tokens().
std::vector<int64_t> split_boundaries(const AttentionProblem& problem, int64_t position,
                                      int64_t chosen = 0);

/// Sequence i's page table is expected at i * table_stride. Needs no pages; `rows_per_item` is of
/// the prefill kernel, `chosen_split` as `chosen` of split_boundaries(). Ends the process for sizes
/// beyond 2^31 - 1.
AttentionPlan plan_attention(const AttentionProblem& problem, int64_t num_kv_heads,
                             int64_t table_stride, int64_t rows_per_item,
                             std::span<const BatchSequence> sequences, int64_t chosen_split = 0);

/// No batch of `num_sequences` with `num_tokens` positions in all has more decode items.
int64_t num_decode_items_max(int64_t num_sequences, int64_t num_tokens);

/// Bytes of the widest copies that pages allow: 16, 8 or 4; rows start at multiples of it.
int copy_bytes(const KvPageLayout& layout);

/// Empty: the kernels here can. Otherwise why not: "head_dim 17 is not a multiple of 8".
std::string why_not_cuda_attention(const AttentionProblem& problem, const KvPageLayout& layout,
                                   DType activation_dtype);

}  // namespace halley
