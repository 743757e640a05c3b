// The products of one segment: a warpgroup joins the planes of its 64 outputs and multiplies them.
#pragma once

#include <cstdint>

#include "halley/cuda/nested_gemm/nested_decode.cuh"
#include "halley/cuda/nested_gemm/nested_producer.cuh"
#include "halley/cuda/nested_gemm/wgmma_f16_256.cuh"

namespace halley::cuda {

/// One warpgroup's 64 outputs of kTokens tokens.
template <int kTokens, int kCluster>
struct NestedConsumer {
  using Sums = TileSums<kTokens>;
  static constexpr int kHalfSteps = kNestedSteps / 2;
  using Fragments = uint32_t[kHalfSteps][4];
  /// A thread's bytes of one step: of outputs row() and row() + 8.
  struct StepCodes {
    uint32_t upper[2][2];
    uint2 lower;
  };
  using Codes = StepCodes[kHalfSteps];
  /// Places of a thread's bytes of both planes in any stage.
  struct Places {
    uint32_t upper = 0;
    uint32_t lower = 0;
  };

  /// Rows of 128 bytes, eight of them 1024 bytes from the next, swizzled by 128 bytes (PTX ISA,
  /// "Matrix Descriptor Format").
  static constexpr uint64_t kDescriptor =
      uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16;

  /// Rows of the upper plane have 128 bytes, and 16-byte units that are swizzled by the row: eight
  /// rows, and the same unit of each, lie in all banks.
  static __device__ __forceinline__ Places places_of(const TileThread& self) {
    const int row = self.warpgroup * 64 + self.warp * 16 + self.row();
    return {static_cast<uint32_t>(row * 128 + self.row() * 16 + self.column_pair() * 2),
            static_cast<uint32_t>(kNestedChunkBytes +
                                  (self.warpgroup * kNestedSteps * 128 + self.in_warpgroup) * 8)};
  }

  /// Half of a stage.
  static __device__ __forceinline__ void load_codes(uint32_t stage, const Places& places, int half,
                                                    Codes& codes) {
#pragma unroll
    for (int i = 0; i < kHalfSteps; ++i) {
      const int step = half * kHalfSteps + i;
      const uint32_t unit = (stage + places.upper) ^ static_cast<uint32_t>(step * 16);
      asm volatile(
          "ld.shared.u16 %0, [%4]; ld.shared.u16 %1, [%4 + 8];\n"
          "ld.shared.u16 %2, [%4 + 1024]; ld.shared.u16 %3, [%4 + 1032];"
          : "=r"(codes[i].upper[0][0]), "=r"(codes[i].upper[0][1]), "=r"(codes[i].upper[1][0]),
            "=r"(codes[i].upper[1][1])
          : "r"(unit));
      codes[i].lower = load_shared_8(stage + places.lower + static_cast<uint32_t>(step * 128 * 8));
    }
  }

  static __device__ __forceinline__ void decode(const Codes& codes, Fragments& fragments) {
#pragma unroll
    for (int i = 0; i < kHalfSteps; ++i) {
      uint32_t* a = fragments[i];
      join_four(codes[i].upper[0][0], codes[i].upper[0][1], codes[i].lower.x, &a[0], &a[2]);
      join_four(codes[i].upper[1][0], codes[i].upper[1][1], codes[i].lower.y, &a[1], &a[3]);
    }
  }

  static __device__ __forceinline__ void start_products(const Fragments& fragments, uint32_t stage,
                                                        int half, int keeps, Sums& sums) {
    const uint32_t tokens =
        stage + static_cast<uint32_t>(kNestedTokensOffset + half * kTokens * 128);
    const uint64_t descriptor = kDescriptor | (tokens & 0x3FFFFu) >> 4;
    fence_products();
#pragma unroll
    for (int i = 0; i < kHalfSteps; ++i) {
      // 16 inputs are 32 bytes.
      F16Product<kTokens>::run(sums, fragments[i], descriptor + 2 * i, i > 0 ? 1 : keeps);
    }
    close_products();
  }

  /// Sums over num_chunks >= 1 stages, from *stage_place on. While the products of half a stage
  /// run, the next half is read and joined: four steps at a time, which do not wait for each other.
  static __device__ __forceinline__ void run(const TileArguments& args, const TileRing& ring,
                                             const TileThread& self, int num_chunks,
                                             TileStage* stage_place, Sums& sums) {
    TileStage place = *stage_place;
    const Places places = places_of(self);
    Fragments first, second;
    Codes codes;
    int previous = 0;
    uint32_t stage = ring.stage(args, place.index);
    wait_barrier(ring.full(args, place.index * kNestedParts), place.parity);
    load_codes(stage, places, 0, codes);
    decode(codes, first);
    for (int i = 0; i < num_chunks; ++i) {
      const int parts = place.index * kNestedParts;
      const uint32_t parity = place.parity;
      wait_barrier(ring.full(args, parts + 1), parity);
      start_products(first, stage, 0, i > 0 ? 1 : 0, sums);
      load_codes(stage, places, 1, codes);
      wait_for_products<1>();
      if (i > 0) release_part<kCluster>(args, ring, self.lane, previous);
      decode(codes, second);
      release_part<kCluster>(args, ring, self.lane, parts);  // all codes are in registers

      wait_barrier(ring.full(args, parts + 2), parity);
      start_products(second, stage, 1, 1, sums);
      place.advance(args.num_stages);
      if (i + 1 < num_chunks) {
        wait_barrier(ring.full(args, place.index * kNestedParts), place.parity);
      }
      // Behind the last stage this reads what is there, for nothing: a branch around loads would
      // make ptxas wait for the products.
      stage = ring.stage(args, place.index);
      load_codes(stage, places, 0, codes);
      wait_for_products<1>();
      release_part<kCluster>(args, ring, self.lane, parts + 1);
      decode(codes, first);
      previous = parts + 2;
    }
    wait_for_products<0>();
    release_part<kCluster>(args, ring, self.lane, previous);
    *stage_place = place;
  }
};

}  // namespace halley::cuda
