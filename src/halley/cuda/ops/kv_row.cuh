// A row (the key or value of one token and head) written to a page, as kernels/kv/kv_cache_view.h
// lays it out.
#pragma once

#include <cfloat>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/kernels/kv/kv_cache_view.h"

namespace halley::cuda {

/// KvLayerView in numbers that kernels use.
struct KvPlace {
  std::byte* pages;
  KvDType dtype;
  int page_tokens;
  int num_kv_heads;
  int64_t page_bytes;
  int64_t row_bytes;
  int64_t scales_begin;  // of a page
  float k_scale, v_scale;
};

inline KvPlace place_of(const KvLayerView& cache) {
  const KvPageLayout& layout = cache.layout;
  return {.pages = cache.pages,
          .dtype = layout.dtype,
          .page_tokens = static_cast<int>(layout.page_tokens),
          .num_kv_heads = static_cast<int>(layout.num_kv_heads),
          .page_bytes = static_cast<int64_t>(layout.page_bytes()),
          .row_bytes = static_cast<int64_t>(layout.row_bytes()),
          .scales_begin =
              has_scales(layout.dtype) ? static_cast<int64_t>(layout.key_scale_offset(0, 0)) : 0,
          .k_scale = cache.scales.k,
          .v_scale = cache.scales.v};
}

/// What one warp has of a row: element i * 32 + lane in x[i] of thread `lane`.
template <int kElements>
struct WarpRow {
  int size;
  int lane;
  const float* x;

  __device__ int column(int i) const { return i * kWarpThreads + lane; }
  __device__ bool has(int i) const { return column(i) < size; }
  __device__ bool is_finite() const {
    bool is_good = true;
    for (int i = 0; i < kElements; ++i) {
      if (has(i)) is_good = is_good && isfinite(x[i]);
    }
    return __all_sync(~0U, is_good) != 0;
  }
  __device__ float min() const {
    float value = FLT_MAX;
    for (int i = 0; i < kElements; ++i) {
      if (has(i)) value = fminf(value, x[i]);
    }
    return -warp_max(-value);
  }
  __device__ float max() const {
    float value = -FLT_MAX;
    for (int i = 0; i < kElements; ++i) {
      if (has(i)) value = fmaxf(value, x[i]);
    }
    return warp_max(value);
  }
};

template <typename T, int kElements>
__device__ void store_as(const WarpRow<kElements>& row, std::byte* data) {
  for (int i = 0; i < kElements; ++i) {
    if (row.has(i)) reinterpret_cast<T*>(data)[row.column(i)] = from_f32<T>(row.x[i]);
  }
}

inline constexpr unsigned short kF16NanBits = 0x7E00;

/// Codes of kBits with an f16 scale and an f16 zero, as int_row_scale() of kernels/kv has them.
template <int kBits, int kElements>
__device__ void store_integers(const WarpRow<kElements>& row, std::byte* data, __half* scale) {
  constexpr float kTopCode = static_cast<float>((1 << kBits) - 1);
  constexpr float kF16Max = 65504.0f;
  const bool is_finite = row.is_finite();
  const float low = fminf(fmaxf(row.min(), -kF16Max), kF16Max) + 0.0f;
  const float high = fminf(fmaxf(row.max(), -kF16Max), kF16Max) + 0.0f;
  const __half zero = __float2half_rd(low);
  const float zero_value = __half2float(zero);
  __half step = __float2half_ru(__fdiv_rn(high - zero_value, kTopCode));
  if (__half_as_ushort(step) == 0) step = __ushort_as_half(1);
  const float step_value = __half2float(step);
  for (int i = 0; i < kElements; ++i) {
    const float steps = __fdiv_rn(row.x[i] - zero_value, step_value);
    auto code = static_cast<unsigned>(rintf(fminf(fmaxf(steps, 0.0f), kTopCode)));
    if (!row.has(i)) code = 0;
    if (kBits == 8) {
      if (row.has(i)) data[row.column(i)] = static_cast<std::byte>(code);
      continue;
    }
    // Neighbours share a byte; an odd size leaves the last high half zero.
    const unsigned next = __shfl_down_sync(~0U, code, 1);
    if (row.lane % 2 == 0 && row.has(i)) {
      data[row.column(i) / 2] = static_cast<std::byte>(code | next << 4);
    }
  }
  if (row.lane == 0) {
    scale[0] = is_finite ? step : __ushort_as_half(kF16NanBits);
    scale[1] = is_finite ? zero : __ushort_as_half(kF16NanBits);
  }
}

template <int kElements>
__device__ void store_e4m3(const WarpRow<kElements>& row, float fixed_scale, std::byte* data,
                           float* scale) {
  constexpr float kE4m3Max = 448.0f;
  const bool is_finite = row.is_finite();
  const float largest = fmaxf(row.max(), -row.min());
  const float used = fixed_scale > 0 ? fixed_scale : fmaxf(__fdiv_rn(largest, kE4m3Max), FLT_MIN);
  for (int i = 0; i < kElements; ++i) {
    if (!row.has(i)) continue;
    const float quotient = __fdiv_rn(row.x[i], used);
    data[row.column(i)] =
        static_cast<std::byte>(__nv_cvt_float_to_fp8(quotient, __NV_SATFINITE, __NV_E4M3));
  }
  if (row.lane == 0) *scale = is_finite ? used : __int_as_float(0x7FC00000);
}

/// `kv_row`: the head for a key, num_kv_heads + the head for a value.
template <int kElements>
__device__ void store_kv_row(const KvPlace& place, int64_t slot, int kv_row,
                             const WarpRow<kElements>& row) {
  std::byte* page = place.pages + slot / place.page_tokens * place.page_bytes;
  const int64_t row_index =
      static_cast<int64_t>(kv_row) * place.page_tokens + slot % place.page_tokens;
  std::byte* data = page + row_index * place.row_bytes;
  std::byte* scale = page + place.scales_begin + row_index * 4;
  const bool is_value = kv_row >= place.num_kv_heads;
  switch (place.dtype) {
    case KvDType::kF32:
      return store_as<float>(row, data);
    case KvDType::kF16:
      return store_as<__half>(row, data);
    case KvDType::kBf16:
      return store_as<__nv_bfloat16>(row, data);
    case KvDType::kInt8:
      return store_integers<8>(row, data, reinterpret_cast<__half*>(scale));
    case KvDType::kInt4:
      return store_integers<4>(row, data, reinterpret_cast<__half*>(scale));
    case KvDType::kFp8E4M3:
      return store_e4m3(row, is_value ? place.v_scale : place.k_scale, data,
                        reinterpret_cast<float*>(scale));
  }
}

}  // namespace halley::cuda
