// Elements of device matrices as f32: scalars and vectors of 4 and 8.
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

/// Four adjacent elements, aligned to their size.
template <typename T>
struct alignas(4 * sizeof(T)) Vec4 {
  T value[4];
};

template <typename T>
__device__ inline float4 load_vec4(const T* from) {
  const Vec4<T> x = *reinterpret_cast<const Vec4<T>*>(from);
  return {to_f32(x.value[0]), to_f32(x.value[1]), to_f32(x.value[2]), to_f32(x.value[3])};
}

template <typename T>
__device__ inline void store_vec4(float4 x, T* to) {
  Vec4<T> rounded;
  rounded.value[0] = from_f32<T>(x.x);
  rounded.value[1] = from_f32<T>(x.y);
  rounded.value[2] = from_f32<T>(x.z);
  rounded.value[3] = from_f32<T>(x.w);
  *reinterpret_cast<Vec4<T>*>(to) = rounded;
}

/// Two adjacent 16-bit elements.
template <typename T>
__device__ float2 pair_to_f32(unsigned bits);
template <>
__device__ inline float2 pair_to_f32<__half>(unsigned bits) {
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}
template <>
__device__ inline float2 pair_to_f32<__nv_bfloat16>(unsigned bits) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
}

/// Rounds as from_f32() does.
template <typename T>
__device__ unsigned pair_from_f32(float low, float high);
template <>
__device__ inline unsigned pair_from_f32<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}
template <>
__device__ inline unsigned pair_from_f32<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

/// Eight adjacent elements in their memory format, aligned to 16 bytes.
template <typename T>
struct Vec8 {
  uint4 bits;

  __device__ void load(const T* from) { bits = *reinterpret_cast<const uint4*>(from); }
  __device__ void unpack(float* x) const {
    const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = pair_to_f32<T>(words[i]);
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
};
template <>
struct Vec8<float> {
  float4 low, high;

  __device__ void load(const float* from) {
    low = reinterpret_cast<const float4*>(from)[0];
    high = reinterpret_cast<const float4*>(from)[1];
  }
  __device__ void unpack(float* x) const {
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
  }
};

template <typename T>
__device__ inline void load_vec8(const T* from, float* x) {
  Vec8<T> eight;
  eight.load(from);
  eight.unpack(x);
}

template <typename T>
__device__ inline void store_vec8(const float* x, T* to) {
  *reinterpret_cast<uint4*>(to) = {pair_from_f32<T>(x[0], x[1]), pair_from_f32<T>(x[2], x[3]),
                                   pair_from_f32<T>(x[4], x[5]), pair_from_f32<T>(x[6], x[7])};
}
template <>
__device__ inline void store_vec8<float>(const float* x, float* to) {
  reinterpret_cast<float4*>(to)[0] = {x[0], x[1], x[2], x[3]};
  reinterpret_cast<float4*>(to)[1] = {x[4], x[5], x[6], x[7]};
}

}  // namespace halley::cuda
