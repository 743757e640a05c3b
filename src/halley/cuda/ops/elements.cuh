// Elements of device matrices as f32, one by one and four at a time.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace halley::cuda {

__device__ inline float to_f32(float x) { return x; }
__device__ inline float to_f32(__half x) { return __half2float(x); }
__device__ inline float to_f32(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T from_f32(float x);
template <>
__device__ inline float from_f32<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_f32<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_f32<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// Four neighbours, at an address that is a multiple of their size.
template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T value[4];
};

template <typename T>
__device__ inline float4 load_four(const T* from) {
  const Four<T> x = *reinterpret_cast<const Four<T>*>(from);
  return {to_f32(x.value[0]), to_f32(x.value[1]), to_f32(x.value[2]), to_f32(x.value[3])};
}

template <typename T>
__device__ inline void store_four(float4 x, T* to) {
  Four<T> rounded;
  rounded.value[0] = from_f32<T>(x.x);
  rounded.value[1] = from_f32<T>(x.y);
  rounded.value[2] = from_f32<T>(x.z);
  rounded.value[3] = from_f32<T>(x.w);
  *reinterpret_cast<Four<T>*>(to) = rounded;
}

}  // namespace halley::cuda
