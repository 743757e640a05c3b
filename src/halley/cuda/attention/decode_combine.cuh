// The combine of split-KV: partial results of a team's warps, then of a sequence's splits, both in
// ascending order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/activation_rows.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/decode_softmax.cuh"
#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::attention {

/// Four elements of a combined output row.
struct CombinedVec4 {
  float of[4] = {};

  __device__ void add(const float2& low, const float2& high, float factor) {
    of[0] = fmaf(low.x, factor, of[0]);
    of[1] = fmaf(low.y, factor, of[1]);
    of[2] = fmaf(high.x, factor, of[2]);
    of[3] = fmaf(high.y, factor, of[3]);
  }
};

/// exp2(maximum of the part - maximum of all). `largest`: row maximum of the part; `sum`: its sum
/// of weights. A part that attends to nothing has a sum of 0, or a NaN, which must propagate.
__device__ inline float rescale_factor(float largest, float sum, float greatest) {
  return largest == -infinity() ? sum : ptx::ex2_approx_ftz_f32(__fsub_rn(largest, greatest));
}

__device__ inline void store_row_vec4(const DecodeParams& params, const DecodeWork& work, int row,
                                      int dim, const CombinedVec4& values, float sum) {
  if (dim >= params.rows.head_dim) return;  // both are multiples of 4
  const int64_t element = work.item.row * params.activations.out_stride +
                          static_cast<int64_t>(work.first_head + row) * params.rows.head_dim + dim;
  store_pair(params.activations, element, values.of[0] / sum, values.of[1] / sum);
  store_pair(params.activations, element + 2, values.of[2] / sum, values.of[3] / sum);
}

/// Index of the item's first query head in the first split of its sequence.
__device__ inline int64_t first_partial(const DecodeParams& params, const DecodeWork& work) {
  const int64_t num_heads = static_cast<int64_t>(params.rows.num_kv_heads) * params.rows.group_size;
  return work.item.first_partial * num_heads + work.first_head;
}

/// Stores a warp's unnormalized O to its free stage, at `begin`, and each row's maximum and sum to
/// `stats`.
template <typename Warp>
__device__ inline void store_warp_partials(const DecodeWork& work, const Warp& warp_state,
                                           int begin) {
  using Shape = typename Warp::Shape;
  const int warp = Shape::Team::warp_of_cta();
  auto* stats = reinterpret_cast<float2*>(shared_memory() + Shape::kStatBegin);
  auto* own = reinterpret_cast<float*>(shared_memory() + begin);
  auto* stage_offsets = reinterpret_cast<int*>(shared_memory() + Shape::kStageOffsetBegin);
  if (Warp::lane() == 0) stage_offsets[warp] = begin;
  __syncwarp();  // all lanes are done with the pipeline's stages
  const auto& softmax = warp_state.softmax;
#pragma unroll
  for (int b = 0; b < Shape::kN8Tiles; ++b) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = 8 * b + 2 * Warp::c() + j;
      if (row >= work.num_rows) continue;
      if (Warp::g() == 0) {
        const bool has_none = softmax.ref_max[b][j] == -infinity();
        stats[warp * Shape::kRowsMax + row] =
            make_float2(has_none ? -infinity() : -softmax.exponent[b][j], softmax.sum[b][j]);
      }
      const float units[2] = {
          Shape::Rows::kHasScales ? softmax.unit * denormal_scale<Shape::kDType>() : 1.0f,
          Shape::Rows::kHasScales ? softmax.unit * odd_denormal_scale<Shape::kDType>() : 1.0f};
      const float zeros = Shape::Rows::kHasZeros ? softmax.zero_sum[b][j] : 0.0f;
#pragma unroll
      for (int n = 0; n < Shape::Rows::kColumns; ++n) {
        own[Shape::combine_offset(row, Warp::value_dim(n))] =
            fmaf(warp_state.acc_o[n / 2][b][n % 2 * 2 + j], units[n % 2], zeros);
      }
    }
  }
}

/// Combines the team's warps. Writes the output row, or the split's partial result with its stats.
template <typename Shape>
__device__ inline void combine_warps(const DecodeParams& params, const DecodeWork& work) {
  using Team = typename Shape::Team;
  constexpr int kHeadDim = Shape::kPaddedHeadDim;
  const auto* stats = reinterpret_cast<const float2*>(shared_memory() + Shape::kStatBegin) +
                      Team::first_warp() * Shape::kRowsMax;
  const auto* stage_offsets =
      reinterpret_cast<const int*>(shared_memory() + Shape::kStageOffsetBegin) + Team::first_warp();
  const int64_t num_heads = static_cast<int64_t>(params.rows.num_kv_heads) * params.rows.group_size;
  const int64_t partial = first_partial(params, work) + work.item.split * num_heads;
  for (int i = 4 * Team::thread(); i < work.num_rows * kHeadDim; i += 4 * Team::kNumThreads) {
    const int row = i / kHeadDim, dim = i % kHeadDim;
    float greatest = -infinity(), sum = 0;
    float2 of_warp[Team::kNumWarps];
#pragma unroll
    for (int warp = 0; warp < Team::kNumWarps; ++warp) {
      of_warp[warp] = stats[warp * Shape::kRowsMax + row];
      greatest = fmaxf(greatest, of_warp[warp].x);
    }
    CombinedVec4 values;
#pragma unroll
    for (int warp = 0; warp < Team::kNumWarps; ++warp) {
      const float factor = rescale_factor(of_warp[warp].x, of_warp[warp].y, greatest);
      sum = fmaf(of_warp[warp].y, factor, sum);
      const auto* from = reinterpret_cast<const float2*>(shared_memory() + stage_offsets[warp] +
                                                         4 * Shape::combine_offset(row, dim));
      values.add(from[0], from[1], factor);
    }
    if (work.item.num_splits == 1) {
      store_row_vec4(params, work, row, dim, values, sum);
    } else {
      *reinterpret_cast<float4*>(params.partial_values + partial * kHeadDim + i) =
          make_float4(values.of[0], values.of[1], values.of[2], values.of[3]);
      if (dim == 0) params.partial_stats[partial + row] = make_float2(greatest, sum);
    }
  }
}

/// Counts the item's split as arrived. One thread calls it, after a barrier of the team that
/// follows the team's writes. Returns whether the split was the last of its sequence.
__device__ inline bool arrive_split(const DecodeParams& params, const DecodeWork& work,
                                    uint32_t num_units) {
  uint32_t* count =
      params.num_arrived + static_cast<int64_t>(work.item.sequence) * num_units + work.unit;
  __threadfence();  // release: the team's writes are visible to whoever sees the count
  const bool is_last = atomicAdd(count, 1u) == static_cast<uint32_t>(work.item.num_splits) - 1;
  if (!is_last) return false;
  *count = 0;       // for the next launch
  __threadfence();  // acquire: the other teams' writes are visible after a barrier of this one
  return true;
}

/// factors: [splits, rows] and sums: [rows], both in shared memory; one warp a row.
template <typename Shape>
__device__ inline void compute_split_factors(const DecodeParams& params, const DecodeWork& work,
                                             float* factors, float* sums) {
  using Team = typename Shape::Team;
  static_assert(kNumSplitsMax <= 64);
  const int64_t num_heads = static_cast<int64_t>(params.rows.num_kv_heads) * params.rows.group_size;
  const int64_t partial = first_partial(params, work);
  const auto lane = static_cast<int>(threadIdx.x % 32);
  for (int row = Team::warp(); row < work.num_rows; row += Team::kNumWarps) {
    float2 stats[2];
    float greatest = -infinity();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int split = lane + 32 * i;
      stats[i] = make_float2(-infinity(), 0);
      if (split < work.item.num_splits) {
        stats[i] = __ldcg(params.partial_stats + partial + split * num_heads + row);
      }
      greatest = fmaxf(greatest, stats[i].x);
    }
#pragma unroll
    for (int mask = 1; mask <= 16; mask *= 2) {
      greatest = fmaxf(greatest, __shfl_xor_sync(0xFFFFFFFFu, greatest, mask));
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float factor = rescale_factor(stats[i].x, stats[i].y, greatest);
      factors[(lane + 32 * i) * Shape::kRowsMax + row] = factor;
      sum = fmaf(stats[i].y, factor, sum);
    }
#pragma unroll
    for (int mask = 1; mask <= 16; mask *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, mask);
    if (lane == 0) sums[row] = sum;
  }
}

/// Combines all splits of the item's sequence in ascending order. A warp alone overwrites its free
/// stage, at `stage_begin`.
template <typename Shape>
__device__ inline void combine_splits(const DecodeParams& params, const DecodeWork& work,
                                      int stage_begin) {
  using Team = typename Shape::Team;
  constexpr int kHeadDim = Shape::kPaddedHeadDim, kAtOnce = 16;
  const int begin = Team::kIsAlone ? stage_begin : Shape::kFactorBegin;
  auto* factors = reinterpret_cast<float*>(shared_memory() + begin);
  float* sums = factors + Shape::kNumFactors;
  const int64_t num_heads = static_cast<int64_t>(params.rows.num_kv_heads) * params.rows.group_size;
  const float* partial = params.partial_values + first_partial(params, work) * kHeadDim;
  const int64_t split_stride = num_heads * kHeadDim;
  const int num_splits = work.item.num_splits;
  const int thread = Team::thread();
  const auto load = [&](int first_split, int i, float4(&vectors)[kAtOnce]) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int split = min(first_split + k, num_splits - 1);
      vectors[k] = __ldcg(reinterpret_cast<const float4*>(partial + split * split_stride + i));
    }
  };
  const int count = work.num_rows * kHeadDim;
  float4 vectors[kAtOnce];
  if (4 * thread < count) load(0, 4 * thread, vectors);  // in flight while factors are computed
  compute_split_factors<Shape>(params, work, factors, sums);
  Team::sync();
  for (int i = 4 * thread; i < count; i += 4 * Team::kNumThreads) {
    const int row = i / kHeadDim, dim = i % kHeadDim;
    CombinedVec4 values;
    for (int split = 0; split < num_splits; split += kAtOnce) {
      if (i > 4 * thread || split > 0) load(split, i, vectors);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (split + k >= num_splits) break;
        values.add(make_float2(vectors[k].x, vectors[k].y), make_float2(vectors[k].z, vectors[k].w),
                   factors[(split + k) * Shape::kRowsMax + row]);
      }
    }
    store_row_vec4(params, work, row, dim, values, sums[row]);
  }
}

}  // namespace halley::attention
