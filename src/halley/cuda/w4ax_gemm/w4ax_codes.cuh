// Codes of W4Ax weights in registers: operand A of wgmma and of mma.sync.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_ring.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {

/// A thread's codes of a stage as operand A: [step of 32 inputs][register].
inline constexpr int kW4axSteps = kW4axInputs / 32;
using W4axFragments = uint32_t[kW4axSteps][4];

/// A code becomes the high half of a byte: without sign extension, 16 times the number.
struct W4axHighHalves {
  static constexpr float kUnit = 0.0625f;  // of a number in the fragments

  /// Two words of codes, a step's.
  static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t u, uint32_t v) {
    asm volatile(
        "{.reg .b32 t;\n"
        "shl.b32 t, %4, 4; and.b32 %0, t, 0xF0F0F0F0; and.b32 %1, %4, 0xF0F0F0F0;\n"
        "shl.b32 t, %5, 4; and.b32 %2, t, 0xF0F0F0F0; and.b32 %3, %5, 0xF0F0F0F0;}"
        : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
        : "r"(u), "r"(v));
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
    loaded.first = load_shared_16(mine);
    loaded.second = load_shared_16(mine + kW4axHalfBytes);
  }

  static __device__ __forceinline__ void decode(const Loaded& loaded, W4axFragments& fragments) {
    Conversion::decode(fragments[0], loaded.first.x, loaded.first.y);
    Conversion::decode(fragments[1], loaded.first.z, loaded.first.w);
    Conversion::decode(fragments[2], loaded.second.x, loaded.second.y);
    Conversion::decode(fragments[3], loaded.second.z, loaded.second.w);
  }
};

}  // namespace halley::cuda
