// RMSNorm of a row in the registers of its CTA: for small M, where the latency of dependent loads
// dominates. Gives the same bits as norm_row.cuh.
#pragma once

#include <cstdint>

#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/norm_row.cuh"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/runtime/prefetch.cuh"

namespace halley::cuda {

inline constexpr int kRegisterNormThreadsMax = 1024;
/// Vectors of 4 of a row that a thread has.
inline constexpr int kRegisterNormVec4s = 2;

// A Block is the policy for what is added to the residual stream, and a kernel parameter. It has
//   launch_dependents()  which the kernel begins with
//   row(m, shape)        behind griddepcontrol_wait(): a thread's share of row m. The thread calls
//     load(i, column)    for each vector i that it has
//     complete()         by all threads of the CTA, behind that
//     vec4(i)            the vector, behind that

/// x: [M, K] row-major in this GPU's memory.
template <typename X>
struct BlockInMemory {
  const X* x;

  class Row {
   public:
    __device__ explicit Row(const X* x) : x_(x) {}
    __device__ void load(int i, int column) { vec4s_[i] = load_vec4(x_ + column); }
    __device__ void complete() const {}
    __device__ float4 vec4(int i) const { return vec4s_[i]; }

   private:
    const X* x_;
    float4 vec4s_[kRegisterNormVec4s];
  };

  __device__ void launch_dependents() const { ptx::griddepcontrol_launch_dependents(); }
  __device__ Row row(int64_t m, const NormRowShape& shape) const {
    return Row(x + m * shape.block_stride);
  }
};

/// One thread's share of a row: vectors of 4, assigned as for_columns() does.
class RegisterNorm {
 public:
  static constexpr int kVec4s = kRegisterNormVec4s;
  static constexpr int64_t kColumnsMax = int64_t{4} * kVec4s * kRegisterNormThreadsMax;

  /// Before ptx::griddepcontrol_wait(): loads the norm's weights, and prefetches the row of the
  /// residual stream (null: none) to L2.
  __device__ RegisterNorm(const NormParams& params, int num_columns, const float* hidden)
      : params_(params), num_columns_(num_columns) {
#pragma unroll
    for (int i = 0; i < kVec4s; ++i) {
      if (!has(i)) continue;
      weight_[i] = load_constants(params.weight + column(i));
      const bool is_first = column(i) * sizeof(float) % ptx::kL2SectorBytes == 0;
      if (hidden != nullptr && is_first) ptx::prefetch_global_l2(hidden + column(i));
    }
  }

  /// After ptx::griddepcontrol_wait(), by all threads of the CTA: adds the block's row to the
  /// residual stream, or takes it alone, and computes the norm. `scratch` is that of cta_sum().
  template <typename BlockRow>
  __device__ void run(BlockRow block, float* hidden, float* scratch) {
#pragma unroll
    for (int i = 0; i < kVec4s; ++i) {
      if (!has(i)) continue;
      block.load(i, column(i));
      if (hidden != nullptr) row_[i] = load_vec4(hidden + column(i));
    }
    block.complete();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVec4s; ++i) {
      if (!has(i)) continue;
      float4& row = row_[i];
      const float4 added = block.vec4(i);
      if (hidden == nullptr) {
        row = added;
      } else {
        row = {row.x + added.x, row.y + added.y, row.z + added.z, row.w + added.w};
        store_vec4(row, hidden + column(i));
      }
      sum += __fmaf_rn(row.w, row.w,
                       __fmaf_rn(row.z, row.z, __fmaf_rn(row.y, row.y, __fmul_rn(row.x, row.x))));
    }
    const float variance = __fdiv_rn(cta_sum(sum, scratch), static_cast<float>(num_columns_));
    const float inverse = rsqrtf(__fadd_rn(variance, params_.epsilon));
#pragma unroll
    for (int i = 0; i < kVec4s; ++i) {
      if (!has(i)) continue;
      const float4 row = row_[i], weight = weight_[i];
      row_[i] = {normed(row.x, inverse, weight.x), normed(row.y, inverse, weight.y),
                 normed(row.z, inverse, weight.z), normed(row.w, inverse, weight.w)};
    }
  }

  /// Calls body(column, the four elements of the norm from there on).
  template <typename Body>
  __device__ void for_each_vec4(const Body& body) {
#pragma unroll
    for (int i = 0; i < kVec4s; ++i) {
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
  float4 weight_[kVec4s], row_[kVec4s];
};

/// Whether M and K are small enough; `shape` has the alignment of all matrices.
inline bool takes_register_norm(const CudaContext& context, const NormParams& params,
                                const NormRowShape& shape) {
  return !params.is_layer_norm && shape.is_vec4_aligned && shape.num_columns % 4 == 0 &&
         shape.num_columns <= RegisterNorm::kColumnsMax &&
         shape.num_rows <= 2 * context.device.num_sms &&
         reinterpret_cast<uintptr_t>(params.weight) % 16 == 0;
}

}  // namespace halley::cuda
