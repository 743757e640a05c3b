// Slower conversions of a W4Ax stage to MMA fragments than W4axCodes.
#pragma once

#include <cstdint>

#include "halley/cuda/ablation/row_order.h"
#include "halley/cuda/w4ax_gemm/w4ax_consumer.cuh"

namespace halley::cuda {

/// A row-major conversion has of_row(): it converts eight consecutive nibbles to the first and the
/// last four bytes. This one gives the bytes of W4axHighHalves.
struct RowMajorHighNibbles {
  static constexpr float kUnit = W4axHighHalves::kUnit;

  static __device__ __forceinline__ void of_row(uint32_t packed, uint32_t& first, uint32_t& last) {
    asm volatile(
        "{.reg .b32 even, odd;\n"
        "shl.b32 even, %2, 4; and.b32 even, even, 0xF0F0F0F0; and.b32 odd, %2, 0xF0F0F0F0;\n"
        "prmt.b32 %0, even, odd, 0x5140; prmt.b32 %1, even, odd, 0x7362;}"
        : "=&r"(first), "=r"(last)
        : "r"(packed));
  }
};

/// Sign-extends the nibble at bit kFirst and three more, each kNext bits further, to four bytes,
/// one by one.
template <int kFirst, int kNext>
__device__ __forceinline__ uint32_t extend_signs(uint32_t packed) {
  uint32_t bytes;
  asm volatile(
      "{.reg .b32 p, q, r, s;\n"
      "bfe.s32 p, %1, %2, 4; bfe.s32 q, %1, %3, 4; bfe.s32 r, %1, %4, 4; bfe.s32 s, %1, %5, 4;\n"
      "prmt.b32 p, p, q, 0x0040; prmt.b32 r, r, s, 0x0040; prmt.b32 %0, p, r, 0x5410;}"
      : "=r"(bytes)
      : "r"(packed), "n"(kFirst), "n"(kFirst + kNext), "n"(kFirst + 2 * kNext),
        "n"(kFirst + 3 * kNext));
  return bytes;
}

struct SignExtendedNibbles {
  static constexpr float kUnit = 1;

  /// Same interface as W4axHighHalves.
  static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t u, uint32_t v) {
    a[0] = extend_signs<0, 8>(u);
    a[1] = extend_signs<4, 8>(u);
    a[2] = extend_signs<0, 8>(v);
    a[3] = extend_signs<4, 8>(v);
  }

  static __device__ __forceinline__ void of_row(uint32_t packed, uint32_t& first, uint32_t& last) {
    first = extend_signs<0, 4>(packed);
    last = extend_signs<16, 4>(packed);
  }
};

/// Weights packed as in row_order.h. A thread's four inputs of a register are two bytes, and those
/// of the next register of its row lie 16 inputs further: sixteen loads, whose rows share banks.
template <class Conversion>
struct RowMajorWeights {
  static constexpr float kUnit = Conversion::kUnit;

  static __device__ __forceinline__ uint32_t load_two_bytes(uint32_t address) {
    uint32_t value;
    asm volatile("{.reg .b16 t; ld.shared.u16 t, [%1]; cvt.u32.u16 %0, t;}"
                 : "=r"(value)
                 : "r"(address));
    return value;
  }

  struct Loaded {
    uint32_t words[kW4axSteps][2];  // of a k-step, of the thread's two rows
  };

  static __device__ __forceinline__ void load(uint32_t packed, const TileThread& self,
                                              Loaded& loaded) {
    const int output = self.warpgroup * 64 + self.warp * 16 + self.row();
    const uint32_t mine =
        packed + static_cast<uint32_t>(row_major_byte(output, 4 * self.column_pair()));
#pragma unroll
    for (int step = 0; step < kW4axSteps; ++step) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const uint32_t at = mine + static_cast<uint32_t>(row_major_byte(8 * u, 32 * step));
        const uint32_t low = load_two_bytes(at), high = load_two_bytes(at + 8);
        asm volatile("prmt.b32 %0, %1, %2, 0x5410;"
                     : "=r"(loaded.words[step][u])
                     : "r"(low), "r"(high));
      }
    }
  }

  static __device__ __forceinline__ void decode(const Loaded& loaded, W4axFragments& fragments) {
#pragma unroll
    for (int step = 0; step < kW4axSteps; ++step) {
      uint32_t(&a)[4] = fragments[step];
      Conversion::of_row(loaded.words[step][0], a[0], a[2]);
      Conversion::of_row(loaded.words[step][1], a[1], a[3]);
    }
  }
};

}  // namespace halley::cuda
