// Codes of W4Ax weights in registers: operand A of wgmma and of mma.sync.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_ring.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/packed_math.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {

namespace in_order = ptx::in_order;

/// A thread's codes of a stage as operand A: [step of 32 inputs][register].
inline constexpr int kW4axSteps = kW4axInputs / 32;
using W4axFragments = uint32_t[kW4axSteps][4];

/// A code becomes the high half of a byte: without sign extension, 16 times the number.
struct W4axHighHalves {
  static constexpr float kUnit = 0.0625f;  // of a number in the fragments

  /// Two words of codes, a step's.
  static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t u, uint32_t v) {
    constexpr uint32_t kHigh = 0xF0F0F0F0u;
    a[0] = in_order::and_b32(in_order::shl_b32(u, 4), kHigh);
    a[1] = in_order::and_b32(u, kHigh);
    a[2] = in_order::and_b32(in_order::shl_b32(v, 4), kHigh);
    a[3] = in_order::and_b32(v, kHigh);
  }
};

/// Codes in the order of w4ax_layout.h.
template <class Conversion>
struct W4axCodes {
  static constexpr float kUnit = Conversion::kUnit;

  /// A thread's, as they lie in memory.
  struct Loaded {
    uint4 first;
    uint4 second;
  };

  /// Of a stage, whose codes begin at `codes`.
  static __device__ __forceinline__ void load(uint32_t codes, const TileThread& self,
                                              Loaded& loaded) {
    const int row = self.thread / 32;
    const uint32_t mine = codes + static_cast<uint32_t>(row * kW4axRowBytes + self.lane * 16);
    loaded.first = ptx::ld_shared_b32x4(mine);
    loaded.second = ptx::ld_shared_b32x4(mine + kW4axHalfBytes);
  }

  static __device__ __forceinline__ void decode(const Loaded& loaded, W4axFragments& fragments) {
    Conversion::decode(fragments[0], loaded.first.x, loaded.first.y);
    Conversion::decode(fragments[1], loaded.first.z, loaded.first.w);
    Conversion::decode(fragments[2], loaded.second.x, loaded.second.y);
    Conversion::decode(fragments[3], loaded.second.z, loaded.second.w);
  }
};

}  // namespace halley::cuda
