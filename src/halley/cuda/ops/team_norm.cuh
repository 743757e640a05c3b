// RMSNorm of many rows, each by a team of 256 threads that keeps the row in registers: several rows
// are in flight on an SM, and each is read from memory once. The same bits as
// norm_row.cuh: a warp takes the parts of several of its warps.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/norm_row.cuh"
#include "halley/cuda/ops/reduce.cuh"

namespace halley::cuda {

inline constexpr int kTeamThreads = 256;
inline constexpr int kTeamWarps = kTeamThreads / kWarpThreads;
/// Where fewer rows would leave SMs idle.
inline constexpr int64_t kTeamNormRowsMin = 256;

/// One thread's part of a row: kPasses fours of neighbours for each of the kShares threads of
/// norm_row() whose part it takes.
template <typename X, int kPasses>
class TeamNorm {
 public:
  static constexpr int kShares = 4;
  static constexpr int64_t kColumnsMax =
      int64_t{4} * kPasses * kShares * kTeamThreads;  // with norm_threads() of 1024

  __device__ TeamNorm(const NormParams& params, int num_columns)
      : params_(params),
        num_columns_(num_columns),
        num_warps_(min((num_columns + 4 * kWarpThreads - 1) / (4 * kWarpThreads), 32)) {}

  /// By all threads of the block: adds x to the stream (null: takes x alone) and makes the norm.
  /// `scratch` [32] in shared memory.
  __device__ void run(const X* x, float* hidden, float* scratch) {
    float4 block[kShares][kPasses];
    for_all([&](int share, int pass, int column) { block[share][pass] = load_four(x + column); });
    if (hidden == nullptr) {
      for_all([&](int share, int pass, int) { row_[share][pass] = block[share][pass]; });
    } else {
      for_all(
          [&](int share, int pass, int column) { row_[share][pass] = load_four(hidden + column); });
      for_all([&](int share, int pass, int column) {
        float4& row = row_[share][pass];
        const float4 added = block[share][pass];
        row = {row.x + added.x, row.y + added.y, row.z + added.z, row.w + added.w};
        store_four(row, hidden + column);
      });
    }
    const float inverse = inverse_of_rows(scratch);
    for_all([&](int share, int pass, int column) {
      float4& row = row_[share][pass];
      const float4 weight = load_four(params_.weight + column);
      row = {normed(row.x, inverse, weight.x), normed(row.y, inverse, weight.y),
             normed(row.z, inverse, weight.z), normed(row.w, inverse, weight.w)};
    });
  }

  /// body(column, the four elements of the norm from there on).
  template <typename Body>
  __device__ void for_fours(const Body& body) {
    for_all([&](int share, int pass, int column) { body(column, row_[share][pass]); });
  }

 private:
  template <typename Body>
  __device__ void for_all(const Body& body) const {
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (has(share, pass)) body(share, pass, column_of(share, pass));
      }
    }
  }
  __device__ int warp_of(int share) const {
    return static_cast<int>(threadIdx.x) / kWarpThreads + share * kTeamWarps;
  }
  __device__ int column_of(int share, int pass) const {
    const int thread = warp_of(share) * kWarpThreads + static_cast<int>(threadIdx.x) % kWarpThreads;
    return 4 * (thread + pass * num_warps_ * kWarpThreads);
  }
  __device__ bool has(int share, int pass) const {
    return warp_of(share) < num_warps_ && column_of(share, pass) < num_columns_;
  }

  /// 1 / root mean square, from sums in norm_row()'s order.
  __device__ float inverse_of_rows(float* scratch) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
      float sum = 0;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (!has(share, pass)) continue;
        const float4 x = row_[share][pass];
        sum += __fmaf_rn(x.w, x.w, __fmaf_rn(x.z, x.z, __fmaf_rn(x.y, x.y, __fmul_rn(x.x, x.x))));
      }
      sum = warp_sum(sum);
      if (lane == 0) scratch[warp_of(share)] = sum;
    }
    __syncthreads();
    const float sum = warp_sum(lane < num_warps_ ? scratch[lane] : 0.0f);
    const float variance = __fdiv_rn(sum, static_cast<float>(num_columns_));
    return rsqrtf(__fadd_rn(variance, params_.epsilon));
  }
  __device__ float normed(float x, float inverse, float weight) const {
    return __fmul_rn(__fmul_rn(x, inverse), __fadd_rn(weight, params_.weight_offset));
  }

  const NormParams& params_;
  const int num_columns_, num_warps_;  // of norm_threads()
  float4 row_[kShares][kPasses] = {};
};

/// Whether the rows are many and fit; `shape` has the alignment of all matrices.
template <typename X>
bool takes_team_norm(const NormParams& params, const NormShape& shape) {
  return !std::is_same_v<X, float> && !params.is_layer_norm && shape.is_in_fours &&
         shape.num_columns % 4 == 0 && shape.num_columns <= TeamNorm<X, 2>::kColumnsMax &&
         shape.num_rows >= kTeamNormRowsMin && reinterpret_cast<uintptr_t>(params.weight) % 16 == 0;
}

/// launch(integral_constant of the passes) for rows of that many columns.
template <typename X, typename Launch>
void with_team_passes(int num_columns, const Launch& launch) {
  if (num_columns <= TeamNorm<X, 1>::kColumnsMax) {
    launch(std::integral_constant<int, 1>());
  } else {
    launch(std::integral_constant<int, 2>());
  }
}

}  // namespace halley::cuda
