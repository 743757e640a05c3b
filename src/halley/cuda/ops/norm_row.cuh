// The norm of one row by one block of threads: every operation written so that the compiler may not
// fuse it with another, so that all kernels with it give the same bits.
#pragma once

#include <cstdint>

#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/reduce.cuh"

namespace halley::cuda {

/// Calls body(first column, whether there are 4 columns or 1) for this thread's part of a row. The
/// number of columns alone decides which part that is.
template <typename Body>
__device__ void for_columns(int num_columns, const Body& body) {
  const int num_fours = num_columns / 4;
  for (int i = static_cast<int>(threadIdx.x); i < num_fours; i += static_cast<int>(blockDim.x)) {
    body(4 * i, true);
  }
  for (int i = 4 * num_fours + static_cast<int>(threadIdx.x); i < num_columns;
       i += static_cast<int>(blockDim.x)) {
    body(i, false);
  }
}

/// Four neighbours; at once where the rows of all matrices begin at multiples of four elements.
template <typename T>
__device__ float4 load_four_if(bool is_in_fours, const T* from) {
  if (is_in_fours) return load_four(from);
  return {to_f32(from[0]), to_f32(from[1]), to_f32(from[2]), to_f32(from[3])};
}

template <typename T>
__device__ void store_four_if(bool is_in_fours, float4 x, T* to) {
  if (is_in_fours) return store_four(x, to);
  to[0] = from_f32<T>(x.x);
  to[1] = from_f32<T>(x.y);
  to[2] = from_f32<T>(x.z);
  to[3] = from_f32<T>(x.w);
}

struct NormShape {
  int num_rows, num_columns;
  bool is_in_fours;
  int64_t x_stride, block_stride;
};

/// A row that is added to the stream and loaded.
template <typename X>
struct NormSource {
  const X* x;
  float* hidden;  // null: x alone
  float* row;     // [num_columns] in shared memory; each thread reads what it wrote itself
  bool is_in_fours;

  __device__ float4 load_four_at(int column) const {
    float4 value = load_four_if(is_in_fours, x + column);
    if (hidden != nullptr) {
      const float4 before = load_four_if(is_in_fours, hidden + column);
      value = {before.x + value.x, before.y + value.y, before.z + value.z, before.w + value.w};
      store_four_if(is_in_fours, value, hidden + column);
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

/// store(column, value) gets every element of the norm, in this thread's part of the row. `scratch`
/// is that of block_sum().
template <bool kIsLayerNorm, typename X, typename Store>
__device__ void norm_row(const NormParams& params, const NormShape& shape,
                         const NormSource<X>& source, float* scratch, const Store& store) {
  const float* row = source.row;
  float sum = 0;
  for_columns(shape.num_columns, [&](int column, bool is_four) {
    if (is_four) {
      const float4 x = source.load_four_at(column);
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
    mean = block_sum(sum, scratch) / size;
    sum = 0;
    for_columns(shape.num_columns, [&](int column, bool is_four) {
      for (int i = 0; i < (is_four ? 4 : 1); ++i) {
        const float difference = row[column + i] - mean;
        sum = __fmaf_rn(difference, difference, sum);
      }
    });
  }
  const float variance = __fdiv_rn(block_sum(sum, scratch), size);
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
  for_columns(shape.num_columns, [&](int column, bool is_four) {
    if (is_four) {
      store(column,
            float4{normed(column), normed(column + 1), normed(column + 2), normed(column + 3)});
    } else {
      store(column, normed(column));
    }
  });
}

/// K alone decides, so that a row's sums do not depend on the batch.
inline int norm_threads(int64_t num_columns) {
  const int64_t warps = (num_columns + 4 * kWarpThreads - 1) / (4 * kWarpThreads);
  return static_cast<int>(warps < 1 ? 1 : warps > 32 ? 32 : warps) * kWarpThreads;
}

}  // namespace halley::cuda
