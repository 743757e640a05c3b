// Norms as floating-point values: the output policy of norm_kernels.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/norm_row.cuh"

namespace halley::cuda {

template <typename Y>
struct StoreRow {
  Y* y;
  bool is_vec4_aligned;
  __device__ void operator()(int column, float4 values) const {
    store_vec4_if(is_vec4_aligned, values, y + column);
  }
  __device__ void operator()(int column, float value) const { y[column] = from_f32<Y>(value); }
};

/// y: [M, K] row-major; rows `stride` elements apart.
template <typename Y>
struct NumberRows {
  static constexpr const char* kName = "norm";
  template <typename X>
  static constexpr bool kTakesTeams = std::is_same_v<X, Y> && !std::is_same_v<X, float>;

  Y* y;
  int64_t stride;

  template <bool kIsLayerNorm, typename X>
  __device__ void write_row(const NormParams& params, const NormRowShape& shape,
                            const NormSource<X>& source, float* scratch) const {
    norm_row<kIsLayerNorm>(params, shape, source, scratch,
                           StoreRow<Y>{y + blockIdx.x * stride, shape.is_vec4_aligned});
  }
  template <typename Norm>
  __device__ void write_vec4s(Norm& norm, int /*num_columns*/) const {
    norm.for_each_vec4([&](int column, const float4& values) {
      store_vec4(values, y + blockIdx.x * stride + column);
    });
  }
};

}  // namespace halley::cuda
