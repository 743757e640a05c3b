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
  using Fragment = uint32_t[4];
  /// A thread's bytes of one step: of outputs row() and row() + 8.
  struct Codes {
    uint32_t upper[2][2];
    uint2 lower;
  };
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

  static __device__ __forceinline__ void load_codes(uint32_t upper, uint32_t lower, int step,
                                                    Codes& codes) {
    const uint32_t unit = upper ^ static_cast<uint32_t>(step * 16);
    asm volatile(
        "ld.shared.u16 %0, [%4]; ld.shared.u16 %1, [%4 + 8];\n"
        "ld.shared.u16 %2, [%4 + 1024]; ld.shared.u16 %3, [%4 + 1032];"
        : "=r"(codes.upper[0][0]), "=r"(codes.upper[0][1]), "=r"(codes.upper[1][0]),
          "=r"(codes.upper[1][1])
        : "r"(unit));
    codes.lower = load_shared_8(lower + static_cast<uint32_t>(step * 128 * 8));
  }

  static __device__ __forceinline__ void decode(const Codes& codes, Fragment& fragment) {
    join_four(codes.upper[0][0], codes.upper[0][1], codes.lower.x, &fragment[0], &fragment[2]);
    join_four(codes.upper[1][0], codes.upper[1][1], codes.lower.y, &fragment[1], &fragment[3]);
  }

  /// `step` of the stage.
  static __device__ __forceinline__ void start_product(const Fragment& fragment, uint32_t stage,
                                                       int step, int keeps, Sums& sums) {
    constexpr int kHalfSteps = kNestedSteps / 2;
    const uint32_t tokens =
        stage + static_cast<uint32_t>(kNestedTokensOffset + step / kHalfSteps * kTokens * 128 +
                                      step % kHalfSteps * 32);
    fence_products();
    F16Product<kTokens>::run(sums, fragment, kDescriptor | (tokens & 0x3FFFFu) >> 4, keeps);
    close_products();
  }

  /// Sums over num_chunks >= 1 stages, from *stage_place on. While the product of a step runs, the
  /// next step is decoded and the one behind it read. Two fragments: one of them the tensor cores
  /// may be reading.
  static __device__ __forceinline__ void run(const TileArguments& args, const TileRing& ring,
                                             const TileThread& self, int num_chunks,
                                             TileStage* stage_place, Sums& sums) {
    TileStage place = *stage_place;
    const Places places = places_of(self);
    Fragment fragments[2];
    Codes codes[2];
    int previous = 0;
    uint32_t stage = ring.stage(args, place.index);
    wait_barrier(ring.full(args, place.index * kNestedParts), place.parity);
    load_codes(stage + places.upper, stage + places.lower, 0, codes[0]);
    load_codes(stage + places.upper, stage + places.lower, 1, codes[1]);
    decode(codes[0], fragments[0]);
    for (int i = 0; i < num_chunks; ++i) {
      const TileStage current = place;
      const int parts = current.index * kNestedParts;
      uint32_t next = 0;
#pragma unroll
      for (int step = 0; step < kNestedSteps; ++step) {
        if (step == 0) wait_barrier(ring.full(args, parts + 1), current.parity);
        if (step == 4) wait_barrier(ring.full(args, parts + 2), current.parity);
        start_product(fragments[step % 2], stage, step, step > 0 || i > 0 ? 1 : 0, sums);
        if (step < 6) {
          load_codes(stage + places.upper, stage + places.lower, step + 2, codes[step % 2]);
        } else {
          if (step == 6) {
            place.advance(args.num_stages);
            if (i + 1 < num_chunks) {
              wait_barrier(ring.full(args, place.index * kNestedParts), place.parity);
            }
            next = ring.stage(args, place.index);
          }
          // Behind the last stage this reads what is there, for nothing: a branch around loads
          // would make ptxas wait for the products.
          load_codes(next + places.upper, next + places.lower, step - 6, codes[step % 2]);
        }
        wait_for_products<1>();
        if (step == 0 && i > 0) release_part<kCluster>(args, ring, self.lane, previous);
        if (step == 4) release_part<kCluster>(args, ring, self.lane, parts + 1);
        decode(codes[(step + 1) % 2], fragments[(step + 1) % 2]);
        // All codes of the stage are in registers.
        if (step == 6) release_part<kCluster>(args, ring, self.lane, parts);
      }
      stage = next;
      previous = parts + 2;
    }
    wait_for_products<0>();
    release_part<kCluster>(args, ring, self.lane, previous);
    *stage_place = place;
  }
};

}  // namespace halley::cuda
