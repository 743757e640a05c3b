// The products of one segment: a warpgroup joins the planes of its 64 outputs and multiplies them.
#pragma once

#include <cstdint>

#include "halley/cuda/nested_gemm/nested_decode.cuh"
#include "halley/cuda/nested_gemm/nested_producer.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::cuda {

/// One warpgroup's 64 outputs of kTokens tokens.
template <int kTokens>
struct NestedConsumer {
  using Sums = TileSums<kTokens>;
  using Fragment = uint32_t[4];
  struct Place {
    ptx::PipelineState planes;
    ptx::PipelineState half;  // of tokens
  };
  /// A thread's bytes of half a stage, four steps: of outputs row() and row() + 8, a word a step.
  struct Codes {
    uint4 upper[2];
    uint4 lower[2];
  };
  /// Places of a thread's bytes of both planes in any stage.
  struct Places {
    uint32_t upper = 0;
    uint32_t lower = 0;
  };
  static constexpr int kHalfSteps = kNestedSteps / 2;

  /// Rows of 128 bytes, eight of them 1024 bytes from the next, swizzled by 128 bytes (PTX ISA,
  /// "Matrix Descriptor Format").
  static constexpr uint64_t kDescriptor =
      uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16;

  /// A row of the upper plane has 128 bytes, 32 of each of the four threads that share it, and
  /// 16-byte units that are swizzled by the row.
  static __device__ __forceinline__ Places places_of(const TileThread& self) {
    const int row = self.warpgroup * 64 + self.warp * 16 + self.row();
    const int unit = (2 * self.column_pair()) ^ self.row();
    return {static_cast<uint32_t>(row * 128 + unit * 16),
            static_cast<uint32_t>(kNestedChunkBytes + self.warpgroup * (kNestedChunkBytes / 2) +
                                  self.in_warpgroup * 16)};
  }

  static __device__ __forceinline__ void load_upper(uint32_t stage, const Places& places, int half,
                                                    Codes& codes) {
    const uint32_t at = (stage + places.upper) ^ static_cast<uint32_t>(half * 16);
    codes.upper[0] = ptx::ld_shared_b32x4(at);
    codes.upper[1] = ptx::ld_shared_b32x4(at + 1024);
  }
  static __device__ __forceinline__ void load_lower(uint32_t stage, const Places& places, int half,
                                                    Codes& codes) {
    const uint32_t at = stage + places.lower + static_cast<uint32_t>(half * 4096);
    codes.lower[0] = ptx::ld_shared_b32x4(at);
    codes.lower[1] = ptx::ld_shared_b32x4(at + 2048);
  }

  static __device__ __forceinline__ uint32_t word_of(const uint4& four, int index) {
    return index == 0 ? four.x : index == 1 ? four.y : index == 2 ? four.z : four.w;
  }
  /// Of step `step` of the half.
  static __device__ __forceinline__ void decode(const Codes& codes, int step, Fragment& fragment) {
    join_four(word_of(codes.upper[0], step), word_of(codes.lower[0], step), &fragment[0],
              &fragment[2]);
    join_four(word_of(codes.upper[1], step), word_of(codes.lower[1], step), &fragment[1],
              &fragment[3]);
  }

  /// Of half a stage's tokens: the low half of a descriptor, in units of 16 bytes.
  static __device__ __forceinline__ uint32_t low_descriptor(uint32_t half) {
    return static_cast<uint32_t>(kDescriptor) | (half & 0x3FFFFu) >> 4;
  }
  static __device__ __forceinline__ void begin(const TileThread& /*self*/) {}

  /// `step` of half a stage.
  static __device__ __forceinline__ void start_product(const Fragment& fragment, uint32_t low,
                                                       int step, int keeps, Sums& sums) {
    const uint32_t at = low + static_cast<uint32_t>(step * 2);
    ptx::wgmma_fence();
    ptx::wgmma_rs<ptx::WgmmaF16>(sums, fragment, (kDescriptor >> 32 << 32) | at, keeps);
    ptx::wgmma_commit_group();
  }

  /// Sums over num_chunks >= 1 stages, from *place on. While the product of a step runs, the next
  /// step is decoded; codes are read half a stage ahead. Two fragments: one of them the tensor
  /// cores may be reading.
  static __device__ __forceinline__ void run(const TileArguments& args, const TileRing& ring,
                                             const TileThread& self, int num_chunks, Place* place,
                                             Sums& sums) {
    ptx::PipelineState planes = place->planes, half = place->half;
    const NestedPlaces<kTokens> in_ring(args);
    const Places places = places_of(self);
    Fragment fragments[2];
    Codes codes[2];
    int previous = 0;  // half of tokens
    uint32_t low = 0;
    uint32_t stage = in_ring.planes(ring, planes.index);
    ptx::mbarrier_wait_parity(ring.full(args, planes.index), planes.parity);
    load_upper(stage, places, 0, codes[0]);
    load_lower(stage, places, 0, codes[0]);
    decode(codes[0], 0, fragments[0]);
    for (int i = 0; i < num_chunks; ++i) {
      const int part = planes.index;
      uint32_t next = stage;
#pragma unroll
      for (int step = 0; step < kNestedSteps; ++step) {
        const int in_half = step % kHalfSteps;
        if (in_half == 0) {
          ptx::mbarrier_wait_parity(ring.full(args, in_ring.half_part(half.index)), half.parity);
          low = low_descriptor(in_ring.half(ring, half.index));
        }
        start_product(fragments[step % 2], low, in_half, step > 0 || i > 0 ? 1 : 0, sums);
        // Behind the last stage this reads what is there, for nothing: a branch around loads would
        // make ptxas wait for the products.
        if (step == kHalfSteps + 1) {
          planes.advance(in_ring.rings.planes);
          if (i + 1 < num_chunks)
            ptx::mbarrier_wait_parity(ring.full(args, planes.index), planes.parity);
          next = in_ring.planes(ring, planes.index);
        }
        const int other = 1 - step / kHalfSteps;
        if (in_half == 1) load_upper(next, places, other, codes[other]);
        if (in_half == 2) load_lower(next, places, other, codes[other]);
        ptx::wgmma_wait_group<1>();
        if (in_half == 0) {
          if (step > 0 || i > 0) release_part(args, ring, self.lane, previous);
          previous = in_ring.half_part(half.index);
          half.advance(in_ring.rings.halves);
        }
        decode(codes[(step + 1) / kHalfSteps % 2], (step + 1) % kHalfSteps,
               fragments[(step + 1) % 2]);
        // All codes of the stage are in registers.
        if (step == kHalfSteps - 1) release_part(args, ring, self.lane, part);
      }
      stage = next;
    }
    ptx::wgmma_wait_group<0>();
    release_part(args, ring, self.lane, previous);
    *place = {planes, half};
  }
};

}  // namespace halley::cuda
