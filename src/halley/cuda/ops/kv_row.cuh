// Writes one row (the key or value of one token and head) to its page, in the layout of
// kernels/kv/kv_cache_view.h.
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

/// KvLayerView as kernel parameters.
struct KvCacheArgs {
  std::byte* pages;
  KvDType dtype;
  int page_tokens;
  int num_kv_heads;
  int64_t page_bytes;
  int64_t row_bytes;
  int64_t scales_begin;  // offset in a page
  float k_scale, v_scale;
};

inline KvCacheArgs kv_cache_args(const KvLayerView& cache) {
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

/// A warp's row: thread `lane` holds element i * 32 + lane in x[i].
template <int kElements>
struct WarpRow {
  int size;
  int lane;
  const float* x;

  __device__ int column(int i) const { return i * kWarpThreads + lane; }
  __device__ bool has(int i) const { return column(i) < size; }
  __device__ bool is_first() const { return lane == 0; }
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
  template <typename T>
  __device__ void store_as(std::byte* data) const {
    for (int i = 0; i < kElements; ++i) {
      if (has(i)) reinterpret_cast<T*>(data)[column(i)] = from_f32<T>(x[i]);
    }
  }
  /// quantize(x) returns an unsigned of kBits.
  template <int kBits, typename Quantize>
  __device__ void store_quantized(std::byte* data, const Quantize& quantize) const {
    for (int i = 0; i < kElements; ++i) {
      const unsigned code = has(i) ? quantize(x[i]) : 0;
      if (kBits == 8) {
        if (has(i)) data[column(i)] = static_cast<std::byte>(code);
        continue;
      }
      // Adjacent elements share a byte; an odd size leaves the last high nibble zero.
      const unsigned next = __shfl_down_sync(~0U, code, 1);
      if (lane % 2 == 0 && has(i)) data[column(i) / 2] = static_cast<std::byte>(code | next << 4);
    }
  }
};

/// The share that one of several threads has of a row: eight elements from each of two columns on,
/// which are multiples of 8. The threads are `num_threads` adjacent lanes (a power of two, aligned
/// to it). A thread without has_any holds no elements but takes part in the reductions.
/// is_whole_warp: all lanes of the warp do the same with rows of their own, so that shuffles use a
/// constant mask; a variable one costs about twenty instructions a shuffle.
struct Vec8Row {
  int num_threads, thread;
  bool has_any, is_whole_warp;
  int columns[2];
  const float* x;  // [16]

  /// Lane mask of the row's threads.
  __device__ unsigned mask() const {
    const int first = static_cast<int>(threadIdx.x) % kWarpThreads - thread;
    return ((1U << num_threads) - 1U) << first;
  }
  /// Reduces the values of the row's threads with combine().
  template <typename Combine>
  __device__ float combined(float value, const Combine& combine) const {
    if (is_whole_warp) {
      for (int step = num_threads / 2; step > 0; step /= 2) {
        value = combine(value, __shfl_xor_sync(~0U, value, step));
      }
      return value;
    }
    const unsigned threads = mask();
    for (int step = num_threads / 2; step > 0; step /= 2) {
      value = combine(value, __shfl_xor_sync(threads, value, step));
    }
    return value;
  }
  __device__ float sum_of(float value) const {
    return combined(value, [](float a, float b) { return a + b; });
  }
  __device__ float max_of(float value) const {
    return combined(value, [](float a, float b) { return fmaxf(a, b); });
  }
  __device__ bool is_first() const { return thread == 0; }
  __device__ bool is_finite() const {
    bool is_good = true;
#pragma unroll
    for (int i = 0; i < 16; ++i) is_good = is_good && isfinite(x[i]);
    if (is_whole_warp) return (__ballot_sync(~0U, is_good || !has_any) & mask()) == mask();
    return __all_sync(mask(), is_good || !has_any) != 0;
  }
  __device__ float min() const {
    float value = FLT_MAX;
#pragma unroll
    for (int i = 0; i < 16; ++i) value = fminf(value, x[i]);
    return -max_of(has_any ? -value : -FLT_MAX);
  }
  __device__ float max() const {
    float value = -FLT_MAX;
#pragma unroll
    for (int i = 0; i < 16; ++i) value = fmaxf(value, x[i]);
    return max_of(has_any ? value : -FLT_MAX);
  }
  template <typename T>
  __device__ void store_as(std::byte* data) const {
    if (!has_any) return;
    store_vec8(x, reinterpret_cast<T*>(data) + columns[0]);
    store_vec8(x + 8, reinterpret_cast<T*>(data) + columns[1]);
  }
  template <int kBits, typename Quantize>
  __device__ void store_quantized(std::byte* data, const Quantize& quantize) const {
    if (!has_any) return;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      std::byte* to = data + columns[part] * kBits / 8;
      unsigned words[2] = {};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        words[i * kBits / 32] |= quantize(x[8 * part + i]) << (i * kBits % 32);
      }
      if (kBits == 8) {
        *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
      } else {
        *reinterpret_cast<unsigned*>(to) = words[0];
      }
    }
  }
};

inline constexpr unsigned short kF16NanBits = 0x7E00;

/// Quantizes to kBits with an f16 scale and an f16 zero, as int_row_scale() of kernels/kv does.
template <int kBits, typename Row>
__device__ void store_integers(const Row& row, std::byte* data, __half* scale) {
  constexpr float kQuantizedMax = static_cast<float>((1 << kBits) - 1);
  constexpr float kF16Max = 65504.0f;
  const bool is_finite = row.is_finite();
  const float low = fminf(fmaxf(row.min(), -kF16Max), kF16Max) + 0.0f;
  const float high = fminf(fmaxf(row.max(), -kF16Max), kF16Max) + 0.0f;
  const __half zero = __float2half_rd(low);
  const float zero_value = __half2float(zero);
  __half step = __float2half_ru(__fdiv_rn(high - zero_value, kQuantizedMax));
  if (__half_as_ushort(step) == 0) step = __ushort_as_half(1);
  const float step_value = __half2float(step);
  row.template store_quantized<kBits>(data, [&](float x) {
    const float steps = __fdiv_rn(x - zero_value, step_value);
    return static_cast<unsigned>(rintf(fminf(fmaxf(steps, 0.0f), kQuantizedMax)));
  });
  if (row.is_first()) {
    scale[0] = is_finite ? step : __ushort_as_half(kF16NanBits);
    scale[1] = is_finite ? zero : __ushort_as_half(kF16NanBits);
  }
}

template <typename Row>
__device__ void store_e4m3(const Row& row, float fixed_scale, std::byte* data, float* scale) {
  constexpr float kE4m3Max = 448.0f;
  const bool is_finite = row.is_finite();
  const float largest = fmaxf(row.max(), -row.min());
  const float used = fixed_scale > 0 ? fixed_scale : fmaxf(__fdiv_rn(largest, kE4m3Max), FLT_MIN);
  row.template store_quantized<8>(data, [&](float x) -> unsigned {
    return __nv_cvt_float_to_fp8(__fdiv_rn(x, used), __NV_SATFINITE, __NV_E4M3);
  });
  if (row.is_first()) *scale = is_finite ? used : __int_as_float(0x7FC00000);
}

/// Slot of one token: its page and its index there.
struct KvSlot {
  std::byte* page;
  int in_page;
};

/// `slot` >= 0 is page * page_tokens + index in the page.
__device__ inline KvSlot slot_of(const KvCacheArgs& kv, int64_t slot) {
  if (slot <= INT32_MAX) {  // a 64-bit division takes about a hundred instructions
    const auto near = static_cast<unsigned>(slot);
    const auto page_tokens = static_cast<unsigned>(kv.page_tokens);
    const unsigned page = near / page_tokens;
    return {kv.pages + page * kv.page_bytes, static_cast<int>(near - page * page_tokens)};
  }
  return {kv.pages + slot / kv.page_tokens * kv.page_bytes,
          static_cast<int>(slot % kv.page_tokens)};
}

/// `kv_row`: the head for a key, num_kv_heads + the head for a value.
template <typename Row>
__device__ void store_kv_row(const KvCacheArgs& kv, const KvSlot& slot, int kv_row,
                             const Row& row) {
  const int64_t row_index = static_cast<int64_t>(kv_row) * kv.page_tokens + slot.in_page;
  std::byte* data = slot.page + row_index * kv.row_bytes;
  std::byte* scale = slot.page + kv.scales_begin + row_index * 4;
  const bool is_value = kv_row >= kv.num_kv_heads;
  switch (kv.dtype) {
    case KvDType::kF32:
      return row.template store_as<float>(data);
    case KvDType::kF16:
      return row.template store_as<__half>(data);
    case KvDType::kBf16:
      return row.template store_as<__nv_bfloat16>(data);
    case KvDType::kInt8:
      return store_integers<8>(row, data, reinterpret_cast<__half*>(scale));
    case KvDType::kInt4:
      return store_integers<4>(row, data, reinterpret_cast<__half*>(scale));
    case KvDType::kFp8E4M3:
      return store_e4m3(row, is_value ? kv.v_scale : kv.k_scale, data,
                        reinterpret_cast<float*>(scale));
  }
}

/// Whether the cache's alignment allows Vec8Row.
inline bool takes_vec8(const KvLayerView& cache) {
  const KvCacheArgs kv = kv_cache_args(cache);
  const int64_t eight_bytes = kv.row_bytes * 8 / cache.layout.head_dim;
  const int64_t alignment = eight_bytes < 16 ? eight_bytes : 16;
  return cache.layout.head_dim % 16 == 0 && kv.row_bytes % alignment == 0 &&
         kv.page_bytes % alignment == 0 &&
         reinterpret_cast<uintptr_t>(cache.pages) % static_cast<uintptr_t>(alignment) == 0;
}

}  // namespace halley::cuda
