// The norm of one row by one CTA. Every operation is an intrinsic or otherwise not contractible, so
// that all kernels that use it give the same bits.
#pragma once

#include <cstdint>

#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/reduce.cuh"

namespace halley::cuda {

/// Calls body(first column, whether it covers 4 columns or 1) for this thread's share of a row. The
/// number of columns alone decides the shares.
template <typename Body>
__device__ void for_columns(int num_columns, const Body& body) {
  const int num_vec4s = num_columns / 4;
  for (int i = static_cast<int>(threadIdx.x); i < num_vec4s; i += static_cast<int>(blockDim.x)) {
    body(4 * i, true);
  }
  for (int i = 4 * num_vec4s + static_cast<int>(threadIdx.x); i < num_columns;
       i += static_cast<int>(blockDim.x)) {
    body(i, false);
  }
}

/// Four adjacent elements; one vector access if the rows of all matrices are aligned for it.
template <typename T>
__device__ float4 load_vec4_if(bool is_vec4_aligned, const T* from) {
  if (is_vec4_aligned) return load_vec4(from);
  return {to_f32(from[0]), to_f32(from[1]), to_f32(from[2]), to_f32(from[3])};
}

template <typename T>
__device__ void store_vec4_if(bool is_vec4_aligned, float4 x, T* to) {
  if (is_vec4_aligned) return store_vec4(x, to);
  to[0] = from_f32<T>(x.x);
  to[1] = from_f32<T>(x.y);
  to[2] = from_f32<T>(x.z);
  to[3] = from_f32<T>(x.w);
}

struct NormRowShape {
  int num_rows, num_columns;
  bool is_vec4_aligned;
  int64_t x_stride, block_stride;
};

/// The source of a row: loads it, after adding it to the residual stream.
template <typename X>
struct NormSource {
  const X* x;
  float* hidden;  // null: x alone
  float* row;     // [num_columns] in shared memory; each thread reads only what it wrote
  bool is_vec4_aligned;

  __device__ float4 load_vec4_at(int column) const {
    float4 value = load_vec4_if(is_vec4_aligned, x + column);
    if (hidden != nullptr) {
      const float4 before = load_vec4_if(is_vec4_aligned, hidden + column);
      value = {before.x + value.x, before.y + value.y, before.z + value.z, before.w + value.w};
      store_vec4_if(is_vec4_aligned, value, hidden + column);
    }
    *reinterpret_cast<float4*>(row + column) = value;
    return value;
  }
  __device__ float load_one_at(int column) const {
    float value = to_f32(x[column]);
    if (hidden != nullptr) {
      value += hidden[column];
      hidden[column] = value;
    }
    row[column] = value;
    return value;
  }
};

/// Calls store(column, value) for every element of the norm in this thread's share of the row.
/// `scratch` is that of cta_sum().
template <bool kIsLayerNorm, typename X, typename Store>
__device__ void norm_row(const NormParams& params, const NormRowShape& shape,
                         const NormSource<X>& source, float* scratch, const Store& store) {
  const float* row = source.row;
  float sum = 0;
  for_columns(shape.num_columns, [&](int column, bool is_vec4) {
    if (is_vec4) {
      const float4 x = source.load_vec4_at(column);
      sum +=
          kIsLayerNorm
              ? x.x + x.y + x.z + x.w
              : __fmaf_rn(x.w, x.w, __fmaf_rn(x.z, x.z, __fmaf_rn(x.y, x.y, __fmul_rn(x.x, x.x))));
    } else {
      const float x = source.load_one_at(column);
      sum = kIsLayerNorm ? sum + x : __fmaf_rn(x, x, sum);
    }
  });
  const auto size = static_cast<float>(shape.num_columns);
  float mean = 0;
  if (kIsLayerNorm) {
    mean = cta_sum(sum, scratch) / size;
    sum = 0;
    for_columns(shape.num_columns, [&](int column, bool is_vec4) {
      for (int i = 0; i < (is_vec4 ? 4 : 1); ++i) {
        const float difference = row[column + i] - mean;
        sum = __fmaf_rn(difference, difference, sum);
      }
    });
  }
  const float variance = __fdiv_rn(cta_sum(sum, scratch), size);
  const float inverse = rsqrtf(__fadd_rn(variance, params.epsilon));
  const auto normed = [&](int column) {
    const float weight = params.weight[column];
    if (!kIsLayerNorm) {
      const float scaled = __fmul_rn(row[column], inverse);
      return __fmul_rn(scaled, __fadd_rn(weight, params.weight_offset));
    }
    const float bias = params.bias == nullptr ? 0.0f : params.bias[column];
    return __fmaf_rn(__fmul_rn(row[column] - mean, inverse), weight, bias);
  };
  for_columns(shape.num_columns, [&](int column, bool is_vec4) {
    if (is_vec4) {
      store(column,
            float4{normed(column), normed(column + 1), normed(column + 2), normed(column + 3)});
    } else {
      store(column, normed(column));
    }
  });
}

/// K alone decides, so that a row's accumulation order does not depend on the batch.
inline int norm_threads(int64_t num_columns) {
  const int64_t warps = (num_columns + 4 * kWarpThreads - 1) / (4 * kWarpThreads);
  return static_cast<int>(warps < 1 ? 1 : warps > 32 ? 32 : warps) * kWarpThreads;
}

}  // namespace halley::cuda
