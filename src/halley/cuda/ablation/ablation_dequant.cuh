// Slower conversions of a W4Ax stage to MMA fragments than W4axCodes.
#pragma once

#include <cstdint>

#include "halley/cuda/ablation/row_order.h"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/packed_math.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_consumer.cuh"

namespace halley::cuda {

namespace in_order = ptx::in_order;

/// A row-major conversion has of_row(): it converts eight consecutive nibbles to the first and the
/// last four bytes. This one gives the bytes of W4axHighHalves.
struct RowMajorHighNibbles {
  static constexpr float kUnit = W4axHighHalves::kUnit;

  static __device__ __forceinline__ void of_row(uint32_t packed, uint32_t& first, uint32_t& last) {
    constexpr uint32_t kHigh = 0xF0F0F0F0u;
    const uint32_t even = in_order::and_b32(in_order::shl_b32(packed, 4), kHigh);
    const uint32_t odd = in_order::and_b32(packed, kHigh);
    first = in_order::prmt_b32(even, odd, 0x5140);
    last = in_order::prmt_b32(even, odd, 0x7362);
  }
};

/// Sign-extends the nibble at bit kFirst and three more, each kNext bits further, to four bytes,
/// one by one.
template <int kFirst, int kNext>
__device__ __forceinline__ uint32_t extend_signs(uint32_t packed) {
  const uint32_t p = in_order::bfe_s32(packed, kFirst, 4);
  const uint32_t q = in_order::bfe_s32(packed, kFirst + kNext, 4);
  const uint32_t r = in_order::bfe_s32(packed, kFirst + 2 * kNext, 4);
  const uint32_t s = in_order::bfe_s32(packed, kFirst + 3 * kNext, 4);
  const uint32_t low = in_order::prmt_b32(p, q, 0x0040);
  const uint32_t high = in_order::prmt_b32(r, s, 0x0040);
  return in_order::prmt_b32(low, high, 0x5410);
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
        const uint32_t low = ptx::ld_shared_u16(at), high = ptx::ld_shared_u16(at + 8);
        loaded.words[step][u] = in_order::prmt_b32(low, high, 0x5410);
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
