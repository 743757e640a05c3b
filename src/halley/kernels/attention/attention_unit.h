// One unit of attention work, some consecutive tokens of a sequence with one kv head, and the SIMD
// functions that compute it.
//
// A query row's result is made in an order that its position alone decides: the positions it sees
// are cut at multiples of kSplitTokens; inside a split, tiles of kTileTokens (aligned to multiples
// too) go through an online softmax in ascending order; the splits are merged in ascending order.
// Rows that share a unit share the loads of keys and values, never an accumulator.
#pragma once

#include <algorithm>
#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/kernels/attention/attention.h"

namespace halley {

inline constexpr int64_t kTileTokens = 32;
/// Long enough that merging is a small part of the work, short enough that a decode at 8k tokens
/// with 4 kv heads feeds 64 threads.
inline constexpr int64_t kSplitTokens = 512;
/// Query rows (tokens times heads of a group) that share one pass over the keys in a prefill: their
/// accumulators stay in the L2 cache, and unpacking the keys costs a tenth of using them.
inline constexpr int64_t kRowsPerUnit = 64;
/// Rows of f32 scratch are padded to this many elements, one vector of any width.
inline constexpr int64_t kRowAlignment = 16;

/// Everything that all units of a call share.
struct AttentionCall {
  const AttentionProblem& problem;
  const KvLayerView& cache;
  ConstMatrix q;
  Matrix out;

  int64_t group_size() const { return problem.num_heads / cache.layout.num_kv_heads; }
  int64_t row_stride() const {  // of keys, values and accumulators in scratch
    return (cache.layout.head_dim + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  }
};

/// Row r of a unit is head r % G of its token r / G.
struct AttentionUnit {
  const BatchSequence* sequence = nullptr;
  int64_t kv_head = 0;
  int64_t first_token = 0;  // among the sequence's new tokens
  int64_t num_tokens = 0;

  int64_t position(int64_t token) const { return sequence->num_past_tokens + first_token + token; }
};

/// Positions [begin, end).
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// The positions that a query at `position` sees.
inline PositionRange visible_range(const AttentionProblem& problem, int64_t position) {
  const bool is_cut = problem.window > 0 && position >= problem.window;
  return {is_cut ? position - problem.window + 1 : 0, position + 1};
}

/// The splits that a unit reads, [begin, end).
inline PositionRange splits_of(const AttentionProblem& problem, const AttentionUnit& unit) {
  const int64_t begin = visible_range(problem, unit.position(0)).begin;
  const int64_t end = visible_range(problem, unit.position(unit.num_tokens - 1)).end;
  return {begin / kSplitTokens, (end - 1) / kSplitTokens + 1};
}

/// The running softmax of a unit's rows: largest score, sum of weights, weighted sum of values.
/// A row that saw nothing has -infinity, 0, zeros. Memory belongs to the caller; rows are padded to
/// a multiple of kRowAlignment.
struct RowStates {
  float* largest = nullptr;  // [rows]
  float* sum = nullptr;      // [rows]
  float* values = nullptr;   // [rows, row_stride]

  static int64_t num_floats(int64_t num_rows, int64_t row_stride) {
    const int64_t rows = (num_rows + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
    return rows * (2 + row_stride);
  }
  static RowStates at(float* memory, int64_t num_rows) {
    const int64_t rows = (num_rows + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
    return {memory, memory + rows, memory + 2 * rows};
  }
};

/// One thread's memory for a unit, 64-byte aligned.
struct AttentionScratch {
  float* rows = nullptr;            // [kTileTokens, row_stride]: keys, then values
  float* keys = nullptr;            // [row_stride, kTileTokens]: keys with the tokens fastest
  float* scores = nullptr;          // [rows, kTileTokens]: scores, then weights
  float* rescale = nullptr;         // [rows]: of the accumulators so far
  const float** queries = nullptr;  // [rows]
};

/// The states of all rows of the unit after the positions of one split alone.
void attend_split(const AttentionCall& call, const AttentionUnit& unit, int64_t split,
                  const AttentionScratch& scratch, const RowStates& states);

/// Adds a split's states to those of the splits before it. The first split that a row sees is
/// copied; one that it does not see leaves it as it is.
void merge_split(const AttentionCall& call, const AttentionUnit& unit, int64_t split,
                 const RowStates& from, const RowStates& into);

/// out = values / sum.
void write_output(const AttentionCall& call, const AttentionUnit& unit, const RowStates& states);

}  // namespace halley
