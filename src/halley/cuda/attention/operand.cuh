// The type of attention's MMA operands; shared memory, waits and copies of its kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/ptx/packed_math.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::attention {

/// Type of the MMA operands; accumulators are f32.
enum class Operand : uint8_t { kF16, kBf16 };

template <Operand kOperand>
using MmaOf = std::conditional_t<kOperand == Operand::kF16, ptx::MmaF16, ptx::MmaBf16>;
/// Keys are K-major, values MN-major.
template <Operand kOperand>
using WgmmaOfKeys = std::conditional_t<kOperand == Operand::kF16, ptx::WgmmaF16, ptx::WgmmaBf16>;
template <Operand kOperand>
using WgmmaOfValues = std::conditional_t<kOperand == Operand::kF16, ptx::WgmmaF16TransposedB,
                                         ptx::WgmmaBf16TransposedB>;

/// All dynamic shared memory of the CTA.
__device__ inline std::byte* shared_memory() {
  extern __shared__ float4 memory[];
  return reinterpret_cast<std::byte*>(memory);
}

/// Waits until the phase of this parity has completed. The loop is C++: prefill has fewer
/// instructions with it than with ptx::mbarrier_wait_parity().
__device__ inline void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

/// Copies kBytes from device to shared memory asynchronously, both aligned to kBytes. If !is_valid
/// it zero-fills and does not read `from`.
template <int kBytes>
__device__ inline void cp_async(uint32_t to, const std::byte* from, bool is_valid) {
  const int src_size = is_valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    ptx::cp_async_cg<ptx::L2Prefetch128B>(to, from, src_size);
  } else {
    ptx::cp_async_ca<kBytes>(to, from, src_size);
  }
}

/// Rounds two f32 to a pair, `low` in the low half.
template <Operand kOperand>
__device__ inline uint32_t pack(float low, float high) {
  if constexpr (kOperand == Operand::kF16) {
    return ptx::cvt_rn_f16x2_f32(low, high);
  } else {
    return ptx::cvt_rn_bf16x2_f32(low, high);
  }
}

/// The two elements of a pair as f32.
template <Operand kOperand>
__device__ inline float2 unpack(uint32_t pair) {
  if constexpr (kOperand == Operand::kF16) {
    return {ptx::cvt_f32_f16(pair & 0xFFFFu), ptx::cvt_f32_f16(pair >> 16)};
  } else {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
  }
}

}  // namespace halley::attention
