// The one row of a product's inputs, made by each block: added to the residual stream and normed,
// or as it is; rounded to 16 bits, or to codes with a scale.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/row_coder.cuh"
#include "halley/cuda/gemm/row_source.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/runtime/prefetch.cuh"

namespace halley::cuda {

/// What products multiply.
enum class RowNumbers { kF16, kBf16, kS8, kE4m3, kS8Blocks };

/// Of kS8Blocks: where scales go, one of each 128 inputs, and, for codes in an order, the row's
/// numbers of 16 bits; shared memory.
struct RowBlocks {
  float* scales = nullptr;
  uint32_t numbers = 0;
};

/// The row as the tensor cores take it, made by all threads of the block. A thread has every
/// kThreads-th four of neighbours.
///
/// Code that runs once a launch comes from memory: loops over fours end at the last one, and all
/// rows share them.
template <RowNumbers kNumbers, int kWarps>
class RowInputs {
 public:
  float scale = 0, sum_of_codes = 0;  // of s8

  /// Before earlier kernels are done: reads the norm's weights.
  __device__ __forceinline__ RowInputs(const RowSource& row, const Rounding& rounding,
                                       uint32_t inputs, uint32_t* scratch)
      : row_(row), rounding_(rounding), inputs_(inputs), scratch_(scratch) {
    if constexpr (kNumbers == RowNumbers::kS8Blocks) {
      if (rounding_.input_perm != nullptr) {
#pragma unroll 1
        for (int i = 0; has(i); ++i) ptx::prefetch_global_l2(rounding_.input_perm + column(i));
      }
    }
    if (!row_.has_norm) return;
#pragma unroll
    for (int i = 0; i < kNormFours; ++i) {
      if (!has(i)) break;
      weight_[i] = load_constants(row_.norm.weight + column(i));
      // The L2 cache has lost it since the last layer.
      if (column(i) * 4 % ptx::kL2SectorBytes == 0)
        ptx::prefetch_global_l2(row_.hidden + column(i));
    }
  }

  /// Behind them: the row to registers, normed and rounded to 16 bits.
  __device__ __forceinline__ void load() {
    if (row_.has_norm) return norm();
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) break;
      fours_[i] = x_at(i);
    }
  }

  /// To shared memory. A barrier follows.
  __device__ __forceinline__ void write(const RowBlocks& blocks = {}) {
    constexpr int kInputBytes = kIsCodes ? 1 : 2;
#pragma unroll 1
    for (int behind = row_.K + static_cast<int>(threadIdx.x) * 4; behind < row_.padded_inputs;
         behind += kThreads * 4) {
      const uint32_t to = inputs_ + static_cast<uint32_t>(behind * kInputBytes);
      ptx::st_shared_b32(to, 0);
      if constexpr (kInputBytes == 2) ptx::st_shared_b32(to + 4, 0);
    }
    if constexpr (kNumbers == RowNumbers::kS8Blocks) {
      if (rounding_.input_perm != nullptr) put_in_order(blocks.numbers);
      write_blocks(blocks.scales);
    } else if constexpr (kIsCodes) {
      write_codes();
    } else {
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        if (!has(i)) break;
        ptx::st_shared_b32x2(inputs_ + static_cast<uint32_t>(column(i) * 2),
                             {fours_[i].x, fours_[i].y});
      }
    }
    ptx::bar_sync<kThreads>(1);
    if constexpr (kNumbers == RowNumbers::kS8) {
      const int* sums = sums_of_warps();
      sum_of_codes = static_cast<float>(__reduce_add_sync(~0U, lane() < kWarps ? sums[lane()] : 0));
    }
  }

 private:
  static constexpr int kThreads = kWarps * 32;
  static constexpr bool kIsCodes = kNumbers != RowNumbers::kF16 && kNumbers != RowNumbers::kBf16;
  static constexpr int kFours = static_cast<int>(kRowInputsMax) / (4 * kThreads);
  static constexpr int kNormFours = static_cast<int>(kNormedRowInputsMax) / (4 * kThreads);
  static constexpr int kNormShares = 32 / kWarps;

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ __forceinline__ int column(int i) {
    return 4 * (static_cast<int>(threadIdx.x) + i * kThreads);
  }
  __device__ __forceinline__ bool has(int i) const { return column(i) < row_.K; }
  __device__ __forceinline__ int* sums_of_warps() const {
    return reinterpret_cast<int*>(scratch_ + 64);
  }
  __device__ __forceinline__ uint2 x_at(int i) const {
    return *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(row_.x) + column(i));
  }

  __device__ __forceinline__ bool is_bf16() const {
    return kNumbers == RowNumbers::kBf16 || (kNumbers != RowNumbers::kF16 && row_.is_bf16);
  }
  __device__ __forceinline__ float4 unpack(uint2 four) const {
    float2 low, high;
    if (is_bf16()) {
      low = pair_to_f32<__nv_bfloat16>(four.x);
      high = pair_to_f32<__nv_bfloat16>(four.y);
    } else {
      low = pair_to_f32<__half>(four.x);
      high = pair_to_f32<__half>(four.y);
    }
    return {low.x, low.y, high.x, high.y};
  }
  __device__ __forceinline__ uint2 pack(float4 x) const {
    if (is_bf16()) {
      return {pair_from_f32<__nv_bfloat16>(x.x, x.y), pair_from_f32<__nv_bfloat16>(x.z, x.w)};
    }
    return {pair_from_f32<__half>(x.x, x.y), pair_from_f32<__half>(x.z, x.w)};
  }

  /// norm_row()'s sums in their order: a warp here has the parts of several warps there.
  __device__ __forceinline__ void norm() {
    float4 row[kNormFours];
    const bool has_block = row_.x != nullptr;
#pragma unroll
    for (int i = 0; i < kNormFours; ++i) {
      if (!has(i)) break;
      row[i] = load_vec4(row_.hidden + column(i));
      if (has_block) fours_[i] = x_at(i);
    }
    float sums[kNormShares] = {};
#pragma unroll
    for (int i = 0; i < kNormFours; ++i) {
      if (!has(i)) break;
      float4& x = row[i];
      if (has_block) {
        const float4 added = unpack(fours_[i]);
        x = {x.x + added.x, x.y + added.y, x.z + added.z, x.w + added.w};
        if (blockIdx.x == 0) store_vec4(x, row_.sum + column(i));
      }
      sums[i % kNormShares] +=
          __fmaf_rn(x.w, x.w, __fmaf_rn(x.z, x.z, __fmaf_rn(x.y, x.y, __fmul_rn(x.x, x.x))));
    }
#pragma unroll
    for (int share = 0; share < kNormShares; ++share) {
      const float sum = warp_sum(sums[share]);
      if (lane() == 0) scratch_[warp() + share * kWarps] = __float_as_uint(sum);
    }
    ptx::bar_sync<kThreads>(1);
    const float sum = warp_sum(__uint_as_float(scratch_[lane()]));
    const float variance = __fdiv_rn(sum, static_cast<float>(row_.K));
    const float inverse = rsqrtf(__fadd_rn(variance, row_.norm.epsilon));
    const auto normed = [&](float x, float w) {
      return __fmul_rn(__fmul_rn(x, inverse), __fadd_rn(w, row_.norm.weight_offset));
    };
#pragma unroll
    for (int i = 0; i < kNormFours; ++i) {
      if (!has(i)) break;
      const float4 x = row[i], w = weight_[i];
      fours_[i] = pack({normed(x.x, w.x), normed(x.y, w.y), normed(x.z, w.z), normed(x.w, w.w)});
    }
  }

  static __device__ __forceinline__ uint32_t codes_of(float4 x, const Step& step, int* sum,
                                                      const Limits& limits = {-128.0f, 127.0f}) {
    return codes_of_vec4(kNumbers == RowNumbers::kE4m3, x, step, limits, *sum);
  }

  /// Inputs as the weight has them, through shared memory.
  __device__ __forceinline__ void put_in_order(uint32_t numbers) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) break;
      ptx::st_shared_b32x2(numbers + static_cast<uint32_t>(column(i) * 2),
                           {fours_[i].x, fours_[i].y});
    }
    ptx::bar_sync<kThreads>(1);
    const auto number_of = [&](int k) {
      return ptx::ld_shared_u16(numbers + static_cast<uint32_t>(k * 2));
    };
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) break;
      const int4 from = *reinterpret_cast<const int4*>(rounding_.input_perm + column(i));
      fours_[i] = {number_of(from.x) | number_of(from.y) << 16,
                   number_of(from.z) | number_of(from.w) << 16};
    }
  }

  /// A warp's fours with the same number are a block of 128 inputs, with its own scale. Lane i
  /// computes that of four i.
  __device__ __forceinline__ void write_blocks(float* scales) {
    static_assert(kFours <= 32);
    const auto begin_of = [&](int i) { return 4 * (warp() * 32 + i * kThreads); };
    uint32_t own_largest = 0;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (begin_of(i) >= row_.K) break;
      const float4 x = has(i) ? unpack(fours_[i]) : float4{};
      const uint32_t largest =
          __reduce_max_sync(~0U, max(max(magnitude_bits(x.x), magnitude_bits(x.y)),
                                     max(magnitude_bits(x.z), magnitude_bits(x.w))));
      if (lane() == i) own_largest = largest;
    }
    const int own_begin = begin_of(lane());
    const Step own_step = step_of(rounding_, own_begin, own_largest);
    if (lane() < kFours && own_begin < row_.K) scales[own_begin / 128] = own_step.scale;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const int begin = begin_of(i);
      if (begin >= row_.K) break;
      const Step step = {__shfl_sync(~0U, own_step.scale, i),
                         __shfl_sync(~0U, own_step.inverse, i)};
      if (!has(i)) continue;
      const Limits limits =
          is_s8_block(rounding_, begin) ? Limits{-128.0f, 127.0f} : Limits{-8.0f, 7.0f};
      int sum = 0;
      ptx::st_shared_b32(inputs_ + static_cast<uint32_t>(column(i)),
                         codes_of(unpack(fours_[i]), step, &sum, limits));
    }
  }

  __device__ __forceinline__ void write_codes() {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) break;
      const float4 x = unpack(fours_[i]);
      largest = max(max(largest, max(magnitude_bits(x.x), magnitude_bits(x.y))),
                    max(magnitude_bits(x.z), magnitude_bits(x.w)));
    }
    uint32_t* const largest_of_warps = scratch_ + 32;
    largest = __reduce_max_sync(~0U, largest);
    if (lane() == 0) largest_of_warps[warp()] = largest;
    ptx::bar_sync<kThreads>(1);
    largest = __reduce_max_sync(~0U, largest_of_warps[lane() % kWarps]);
    const Step step = step_of(rounding_, 0, largest);
    int sum = 0;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) break;
      ptx::st_shared_b32(inputs_ + static_cast<uint32_t>(column(i)),
                         codes_of(unpack(fours_[i]), step, &sum));
    }
    if constexpr (kNumbers == RowNumbers::kS8) {
      sum = __reduce_add_sync(~0U, sum);
      if (lane() == 0) sums_of_warps()[warp()] = sum;
    }
    scale = step.scale;
  }

  const RowSource& row_;
  const Rounding& rounding_;
  const uint32_t inputs_;
  uint32_t* const scratch_;
  float4 weight_[kNormFours];
  uint2 fours_[kFours];
};

}  // namespace halley::cuda
