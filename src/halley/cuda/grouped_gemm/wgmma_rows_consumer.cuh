// A warpgroup's part of a tile where weights are rows: both operands in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/grouped_gemm/wgmma_grouped_arguments.h"
#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"
#include "halley/cuda/mixed_gemm/mixed_ring.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::cuda {

/// The instruction for rows of a kind.
template <GroupedKind kKind>
using RowsWgmma =
    std::conditional_t<kKind == GroupedKind::kS8, ptx::WgmmaS8,
                       std::conditional_t<kKind == GroupedKind::kE4m3, ptx::WgmmaE4m3,
                                          std::conditional_t<kKind == GroupedKind::kF16,
                                                             ptx::WgmmaF16, ptx::WgmmaBf16>>>;

/// As MixedConsumer: two sub-tiles of 64 outputs of kTokens tokens. Accumulators of e4m3, which
/// keep 14 bits between steps, are added in f32 after every stage, that is 128 inputs.
template <GroupedKind kKind, int kTokens>
struct WgmmaRowsConsumer {
  using Wgmma = RowsWgmma<kKind>;
  using Sum = typename Wgmma::Accumulator;
  static constexpr int kOwnSubTiles = kNumSubTiles / 2;
  using Sums = Sum[kOwnSubTiles][kTokens / 2];
  static constexpr bool kIsPromoted = kKind == GroupedKind::kE4m3;
  static constexpr int kSteps = 4;  // of 32 bytes of a row
  /// Rows of 128 bytes, eight of them 1024 bytes from the next, swizzled by 128 bytes (PTX ISA,
  /// "Matrix Descriptor Format").
  static constexpr uint64_t kDescriptor =
      uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16;

  static __device__ __forceinline__ uint64_t descriptor_of(uint32_t address) {
    return kDescriptor | (address & 0x3FFFFu) >> 4;
  }

  /// A sub-tile's part of one stage, added to `sums` where `keeps` is not 0.
  static __device__ __forceinline__ void start_sub_tile(uint64_t weights, uint64_t tokens,
                                                        int keeps, Sum (&sums)[kTokens / 2]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const auto offset = static_cast<uint64_t>(step * 2);
      ptx::wgmma_ss<Wgmma>(sums, weights + offset, tokens + offset, step > 0 ? 1 : keeps);
    }
  }
  static constexpr uint64_t kNextSubTile = kSubTileRows * kStageRowBytes / 16;

  static __device__ __forceinline__ void release(const MixedArguments& args, const MixedRing& ring,
                                                 const MixedThread& self, int stage) {
    __syncwarp();
    if (self.lane == 0) ptx::mbarrier_arrive(ring.empty(args, stage));
  }

  /// Sums over num_stages >= 1 stages, from *stage on.
  static __device__ __forceinline__ void run(const MixedArguments& args, const MixedRing& ring,
                                             const MixedThread& self, int num_stages,
                                             ptx::PipelineState* stage, Sums& sums) {
    constexpr int kOwnBytes = kOwnSubTiles * kSubTileRows * kStageRowBytes;
    const auto own = static_cast<uint32_t>(self.warpgroup * kOwnBytes);
    ptx::PipelineState at = *stage;
    int previous = 0;
    if constexpr (kIsPromoted) {
#pragma unroll
      for (int i = 0; i < kOwnSubTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kTokens / 2; ++j) sums[i][j] = 0;
      }
    }
#pragma unroll 1
    for (int k = 0; k < num_stages; ++k) {
      ptx::mbarrier_wait_parity(ring.full(args, at.index), at.parity);
      const uint64_t weights = descriptor_of(ring.w_stage(args, at.index) + own);
      const uint64_t tokens = descriptor_of(ring.x_stage(args, at.index));
      if constexpr (kIsPromoted) {
        // One sub-tile after the other: accumulators of both, twice, are too many registers. While
        // a warpgroup adds, the other one multiplies.
#pragma unroll
        for (int i = 0; i < kOwnSubTiles; ++i) {
          float partial[kTokens / 2];
          ptx::wgmma_fence();
          start_sub_tile(weights + static_cast<uint64_t>(i) * kNextSubTile, tokens, 0, partial);
          ptx::wgmma_commit_group();
          ptx::wgmma_wait_group<0>();
          if (i + 1 == kOwnSubTiles) release(args, ring, self, at.index);
#pragma unroll
          for (int j = 0; j < kTokens / 2; ++j) sums[i][j] += partial[j];
        }
      } else {
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < kOwnSubTiles; ++i) {
          start_sub_tile(weights + static_cast<uint64_t>(i) * kNextSubTile, tokens, k > 0 ? 1 : 0,
                         sums[i]);
        }
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();
        if (k > 0) release(args, ring, self, previous);
        previous = at.index;
      }
      at.advance(args.num_stages);
    }
    if constexpr (!kIsPromoted) {
      ptx::wgmma_wait_group<0>();
      release(args, ring, self, previous);
    }
    *stage = at;
  }
};

}  // namespace halley::cuda
