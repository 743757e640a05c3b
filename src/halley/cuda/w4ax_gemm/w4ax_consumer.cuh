// The products of one segment: a warpgroup decodes its 64 outputs, multiplies a block of 128 inputs
// to s32 sums, and adds them, scaled, in f32.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_epilogue.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/wgmma.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_codes.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_producer.cuh"

namespace halley::cuda {

/// Barriers for a warpgroup's turn to multiply; lower ones are those of warpgroups alone.
inline constexpr int kTurnBarrier = 3;

/// Once in a launch, before the first block: the turn is the first warpgroup's.
__device__ __forceinline__ void begin_turns(int warpgroup) {
  if (warpgroup == 1) ptx::bar_arrive<256>(kTurnBarrier);
}
__device__ __forceinline__ void wait_for_turn(int warpgroup) {
  ptx::bar_sync<256>(kTurnBarrier + warpgroup);
}
__device__ __forceinline__ void pass_turn(int warpgroup) {
  ptx::bar_arrive<256>(kTurnBarrier + 1 - warpgroup);
}

/// Codes: as W4axCodes.
template <int kTokens, class Codes = W4axCodes<W4axHighHalves>>
struct W4axConsumer {
  using Place = ptx::PipelineState;
  using Sums = TileSums<kTokens>;
  using BlockSums = int32_t[kTokens / 2];
  using Fragments = W4axFragments;
  /// One warpgroup scales its sums while the tensor cores multiply for the other. Left alone, both
  /// would do the same at the same time. Fewer tokens lose more by waiting than they gain.
  static constexpr bool kTakesTurns = kTokens >= 128;
  /// Groups of eight tokens whose scales are read at a time.
  static constexpr int kColumns = kTokens / 8;
  static constexpr int kBatch = kTokens < 128 ? 2 : 4;

  /// Rows of 128 bytes, eight of them 1024 bytes from the next, swizzled by 128 bytes (PTX ISA,
  /// "Matrix Descriptor Format").
  static constexpr uint64_t kDescriptor =
      uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16;

  /// Of the thread's two outputs.
  struct OutputScales {
    float of[2];
  };

  static __device__ __forceinline__ void load_codes(uint32_t stage, const TileThread& self,
                                                    typename Codes::Loaded& codes) {
    Codes::load(stage + static_cast<uint32_t>(w4ax_codes_offset(kTokens)), self, codes);
  }

  static __device__ __forceinline__ OutputScales load_output_scales(uint32_t stage,
                                                                    const TileThread& self) {
    const int output = self.warpgroup * 64 + self.warp * 16 + self.row();
    const uint32_t at = stage + static_cast<uint32_t>(w4ax_scales_offset(kTokens) + output * 4);
    OutputScales scales;
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      scales.of[u] =
          __uint_as_float(ptx::ld_shared_b32(at + static_cast<uint32_t>(u * 32))) * Codes::kUnit;
    }
    return scales;
  }

  /// Where those of the thread's tokens of the first column begin.
  static __device__ __forceinline__ uint32_t token_scales_of(uint32_t stage,
                                                             const TileThread& self) {
    return stage + static_cast<uint32_t>(w4ax_scales_offset(kTokens) + kW4axScaleBytes +
                                         self.column_pair() * 8);
  }

  static __device__ __forceinline__ void load_token_scales(uint32_t at, int column,
                                                           uint2 (&scales)[kBatch]) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      scales[j] = ptx::ld_shared_b32x2(at + static_cast<uint32_t>((column + j) * 32));
    }
  }

  /// sums += block sums * scales.
  static __device__ __forceinline__ void add_scaled(const OutputScales& outputs,
                                                    const uint2 (&tokens)[kBatch], int column,
                                                    const BlockSums& of_block, Sums& sums) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = (column + j) * 4 + e, u = e / 2;
        const float scaled = static_cast<float>(of_block[i]) * outputs.of[u];
        sums[i] = fmaf(scaled, __uint_as_float(e % 2 == 0 ? tokens[j].x : tokens[j].y), sums[i]);
      }
    }
  }

  static __device__ __forceinline__ void start_products(const Fragments& fragments, uint32_t low,
                                                        BlockSums& of_block) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kW4axSteps; ++step) {
      // The last one is a group of its own.
      if (step + 1 == kW4axSteps) ptx::wgmma_commit_group();
      ptx::wgmma_rs<ptx::WgmmaS8>(
          of_block, fragments[step],
          (kDescriptor >> 32 << 32) | (low + static_cast<uint32_t>(2 * step)), step > 0 ? 1 : 0);
    }
    ptx::wgmma_commit_group();
  }
  /// Of a stage's tokens: the low half of a descriptor.
  static __device__ __forceinline__ uint32_t low_descriptor(uint32_t stage) {
    return static_cast<uint32_t>(kDescriptor) | (stage & 0x3FFFFu) >> 4;
  }

  static __device__ __forceinline__ void begin(const TileThread& self) {
    if constexpr (kTakesTurns) begin_turns(self.warpgroup);
  }

  static __device__ __forceinline__ void add_all(const OutputScales& outputs, uint32_t token_scales,
                                                 uint2 (&tokens)[2][kBatch],
                                                 const BlockSums& of_block, Sums& sums) {
#pragma unroll
    for (int column = 0; column < kColumns; column += kBatch) {
      const int batch = column / kBatch;
      if (column + kBatch < kColumns) {
        load_token_scales(token_scales, column + kBatch, tokens[(batch + 1) % 2]);
      }
      add_scaled(outputs, tokens[batch % 2], column, of_block, sums);
    }
  }

  /// Sums over num_blocks >= 1 blocks, from *stage_place on. Codes are decoded before the turn to
  /// multiply.
  static __device__ __forceinline__ void run(const TileArguments& args, const TileRing& ring,
                                             const TileThread& self, int num_blocks,
                                             ptx::PipelineState* stage_place, Sums& sums) {
    ptx::PipelineState place = *stage_place;
    Fragments fragments;
    typename Codes::Loaded codes;
    BlockSums of_block;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) sums[i] = 0;
    uint32_t stage = ring.stage(args, place.index);
    ptx::mbarrier_wait_parity(ring.full(args, place.index), place.parity);
    load_codes(stage, self, codes);
    Codes::decode(codes, fragments);
    for (int left = num_blocks; left > 0; --left) {
      const int index = place.index;
      const uint32_t low = low_descriptor(stage);
      const OutputScales outputs = load_output_scales(stage, self);
      const uint32_t token_scales = token_scales_of(stage, self);
      uint2 tokens[2][kBatch];
      load_token_scales(token_scales, 0, tokens[0]);
      if constexpr (kTakesTurns) wait_for_turn(self.warpgroup);
      start_products(fragments, low, of_block);
      place.advance(args.num_stages);
      stage = ring.stage(args, place.index);
      // Without turns other warps have work meanwhile, and registers are few.
      if constexpr (!kTakesTurns) ptx::wgmma_wait_group<0>();
      if (left > 1) ptx::mbarrier_wait_parity(ring.full(args, place.index), place.parity);
      // Behind the last stage this reads what is there, for nothing: a branch around loads would
      // make ptxas wait for the products.
      load_codes(stage, self, codes);
      if constexpr (kTakesTurns) {
        // The other warpgroup's products follow the last of these without a gap.
        ptx::wgmma_wait_group<1>();
        pass_turn(self.warpgroup);
        ptx::wgmma_wait_group<0>();
      }
      add_all(outputs, token_scales, tokens, of_block, sums);
      release_part(args, ring, self.lane, index);
      Codes::decode(codes, fragments);
    }
    *stage_place = place;
  }
};

}  // namespace halley::cuda
