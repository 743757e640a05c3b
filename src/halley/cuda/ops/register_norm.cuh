// RMSNorm of a row that fits the registers of its block: for steps of few rows, whose time is that
// of one load behind the other. The same bits as norm_row.cuh.
#pragma once

#include <cstdint>

#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/norm_row.cuh"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/cuda/runtime/read_ahead.cuh"

namespace halley::cuda {

inline constexpr int kRegisterNormThreadsMax = 1024;

/// One thread's part of a row, fours of neighbours as for_columns() has them.
template <typename X>
class RegisterNorm {
 public:
  static constexpr int kFours = 2;
  static constexpr int64_t kColumnsMax = int64_t{4} * kFours * kRegisterNormThreadsMax;

  /// Before griddepcontrol_wait(): reads the weights, and brings the row of the stream (null:
  /// none) to the L2 cache.
  __device__ RegisterNorm(const NormParams& params, int num_columns, const float* hidden)
      : params_(params), num_columns_(num_columns) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) continue;
      weight_[i] = read_ahead(params.weight + column(i));
      const bool is_first = column(i) * sizeof(float) % kFetchedBytes == 0;
      if (hidden != nullptr && is_first) fetch_ahead(hidden + column(i));
    }
  }

  /// Behind the wait, by all threads of the block: adds x to the stream, or takes it alone, and
  /// makes the norm. `scratch` as block_sum() has it.
  __device__ void run(const X* x, float* hidden, float* scratch) {
    float4 block[kFours];
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) continue;
      block[i] = load_four(x + column(i));
      if (hidden != nullptr) row_[i] = load_four(hidden + column(i));
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) continue;
      float4& row = row_[i];
      if (hidden == nullptr) {
        row = block[i];
      } else {
        row = {row.x + block[i].x, row.y + block[i].y, row.z + block[i].z, row.w + block[i].w};
        store_four(row, hidden + column(i));
      }
      sum += __fmaf_rn(row.w, row.w,
                       __fmaf_rn(row.z, row.z, __fmaf_rn(row.y, row.y, __fmul_rn(row.x, row.x))));
    }
    const float variance = __fdiv_rn(block_sum(sum, scratch), static_cast<float>(num_columns_));
    const float inverse = rsqrtf(__fadd_rn(variance, params_.epsilon));
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) continue;
      const float4 row = row_[i], weight = weight_[i];
      row_[i] = {normed(row.x, inverse, weight.x), normed(row.y, inverse, weight.y),
                 normed(row.z, inverse, weight.z), normed(row.w, inverse, weight.w)};
    }
  }

  /// body(column, the four elements of the norm from there on).
  template <typename Body>
  __device__ void for_fours(const Body& body) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (has(i)) body(column(i), row_[i]);
    }
  }

 private:
  __device__ int column(int i) const {
    return 4 * (static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x));
  }
  __device__ bool has(int i) const { return column(i) < num_columns_; }
  __device__ float normed(float x, float inverse, float weight) const {
    return __fmul_rn(__fmul_rn(x, inverse), __fadd_rn(weight, params_.weight_offset));
  }

  const NormParams& params_;
  const int num_columns_;
  float4 weight_[kFours], row_[kFours];
};

/// Whether the rows are few and short enough; `shape` has the alignment of all matrices.
inline bool takes_register_norm(const CudaContext& context, const NormParams& params,
                                const NormShape& shape) {
  return !params.is_layer_norm && shape.is_in_fours && shape.num_columns % 4 == 0 &&
         shape.num_columns <= RegisterNorm<float>::kColumnsMax &&
         shape.num_rows <= 2 * context.device.num_sms &&
         reinterpret_cast<uintptr_t>(params.weight) % 16 == 0;
}

}  // namespace halley::cuda
