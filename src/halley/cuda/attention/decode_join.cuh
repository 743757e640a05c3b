// Joining the sums of a decode's warps, and of its splits, in ascending order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/activation_rows.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/softmax_rows.cuh"

namespace halley::attention {

/// What is known of rows: (largest score, sum of weights), [parts, kTileRows] in shared memory.
/// Returns the rows' factors in its place: of a part's values in the result.
__device__ inline void stats_to_factors(float2* stats, int num_parts, int row) {
  float greatest = -infinity();
  for (int part = 0; part < num_parts; ++part) {
    greatest = fmaxf(greatest, stats[part * kTileRows + row].x);
  }
  float sum = 0;
  for (int part = 0; part < num_parts; ++part) {
    float2& stat = stats[part * kTileRows + row];
    // Where nothing was found, the sum is 0, or NaN that must not be lost.
    const float factor = stat.x == -infinity() ? stat.y : exp2_approx(stat.x - greatest);
    sum = fmaf(stat.y, factor, sum);
    stat.x = factor;
  }
  stats[row].y = sum;
}

/// Joins the warps' sums; writes the result, or the split's part of it with its stats.
template <typename Warp>
__device__ inline void join_warps(const DecodeParams& params, const DecodeWork& work,
                                  const Warp& warp_state) {
  using Shape = typename Warp::Shape;
  constexpr int kHeadDim = Shape::kPaddedHeadDim;
  auto* stats = reinterpret_cast<float2*>(shared_memory() + Shape::kStatBegin);
  const auto values_of = [](int warp) {
    return reinterpret_cast<float*>(shared_memory() + warp * Shape::kRingBytes);
  };
  __syncwarp();  // all lanes are done with the ring
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = Warp::lane() / 4 + 8 * h;
    if (row >= work.num_rows) continue;
    const auto& softmax = warp_state.softmax;
    if (Warp::lane() % 4 == 0) {
      stats[Warp::warp() * kTileRows + row] = make_float2(softmax.largest[h], softmax.sum[h]);
    }
    float* own = values_of(Warp::warp());
#pragma unroll
    for (int n = 0; n < Shape::Rows::kColumns; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        own[Shape::join_offset(row, Warp::value_dim(n, j))] =
            fmaf(warp_state.values[n][2 * h + j], softmax.unit[h], softmax.zero_sum[h]);
      }
    }
  }
  __syncthreads();
  // The row's stats of the whole block, before they are replaced by factors.
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t num_heads = static_cast<int64_t>(params.rows.num_kv_heads) * params.rows.group_size;
  const int64_t partial = (work.item.first_partial + work.item.split) * num_heads + work.first_head;
  if (thread < work.num_rows) {
    float greatest = -infinity();
    for (int warp = 0; warp < kDecodeWarps; ++warp) {
      greatest = fmaxf(greatest, stats[warp * kTileRows + thread].x);
    }
    stats_to_factors(stats, kDecodeWarps, thread);
    if (work.item.num_splits > 1) {
      params.partial_stats[partial + thread] = make_float2(greatest, stats[thread].y);
    }
  }
  __syncthreads();
  for (int i = 2 * thread; i < work.num_rows * kHeadDim; i += 2 * kDecodeThreads) {
    const int row = i / kHeadDim, dim = i % kHeadDim;
    float low = 0, high = 0;
    for (int warp = 0; warp < kDecodeWarps; ++warp) {
      const float factor = stats[warp * kTileRows + row].x;
      const float2 pair =
          *reinterpret_cast<const float2*>(values_of(warp) + Shape::join_offset(row, dim));
      low = fmaf(pair.x, factor, low);
      high = fmaf(pair.y, factor, high);
    }
    if (work.item.num_splits > 1) {
      *reinterpret_cast<float2*>(params.partial_values + partial * kHeadDim + i) =
          make_float2(low, high);
    } else if (dim < params.rows.head_dim) {
      const float sum = stats[row].y;
      const int64_t element = work.item.row * params.activations.out_stride +
                              static_cast<int64_t>(work.first_head + row) * params.rows.head_dim +
                              dim;
      store_pair(params.activations, element, low / sum, high / sum);
    }
  }
}

/// Joins all splits of the work's sequence, in ascending order, where this block finished the last.
template <typename Shape>
__device__ inline void join_splits(const DecodeParams& params, const DecodeWork& work) {
  constexpr int kHeadDim = Shape::kPaddedHeadDim;
  const int thread = static_cast<int>(threadIdx.x);
  auto* note = reinterpret_cast<uint32_t*>(shared_memory() + Shape::kNoteBegin);
  __threadfence();  // what this block has written is there for who sees the count below
  __syncthreads();
  const int row_blocks = (params.rows.group_size + kTileRows - 1) / kTileRows;
  if (thread == 0) {
    uint32_t* count =
        params.num_arrived +
        static_cast<int64_t>(work.item.sequence) * params.rows.num_kv_heads * row_blocks +
        work.unit;
    const bool is_last = atomicAdd(count, 1u) == static_cast<uint32_t>(work.item.num_splits) - 1;
    if (is_last) *count = 0;  // for the next launch
    note[1] = is_last ? 1u : 0u;
  }
  __syncthreads();
  if (note[1] == 0) return;
  __threadfence();
  auto* stats = reinterpret_cast<float2*>(shared_memory() + Shape::kStatBegin);
  const int64_t num_heads = static_cast<int64_t>(params.rows.num_kv_heads) * params.rows.group_size;
  const int64_t partial = work.item.first_partial * num_heads + work.first_head;
  for (int i = thread; i < work.item.num_splits * kTileRows; i += kDecodeThreads) {
    const int split = i / kTileRows, row = i % kTileRows;
    if (row < work.num_rows) {
      stats[i] = __ldcg(params.partial_stats + partial + split * num_heads + row);
    }
  }
  __syncthreads();
  if (thread < work.num_rows) stats_to_factors(stats, work.item.num_splits, thread);
  __syncthreads();
  for (int i = 2 * thread; i < work.num_rows * kHeadDim; i += 2 * kDecodeThreads) {
    const int row = i / kHeadDim, dim = i % kHeadDim;
    float low = 0, high = 0;
#pragma unroll 8
    for (int split = 0; split < work.item.num_splits; ++split) {
      const float2 pair = __ldcg(reinterpret_cast<const float2*>(
          params.partial_values + (partial + split * num_heads) * kHeadDim + i));
      const float factor = stats[split * kTileRows + row].x;
      low = fmaf(pair.x, factor, low);
      high = fmaf(pair.y, factor, high);
    }
    if (dim < params.rows.head_dim) {
      const float sum = stats[row].y;
      const int64_t element = work.item.row * params.activations.out_stride +
                              static_cast<int64_t>(work.first_head + row) * params.rows.head_dim +
                              dim;
      store_pair(params.activations, element, low / sum, high / sum);
    }
  }
}

}  // namespace halley::attention
