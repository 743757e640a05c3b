// The sums of a tile that the blocks of a cluster share: each block finishes a part of them, which
// the others send to its shared memory.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"
#include "halley/cuda/ptx/cluster.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::cuda {

/// Units of a tile that a block finishes.
struct MixedPart {
  int begin = 0;
  int end = 0;
};

/// Where a tile lies in Y.
struct MixedPlace {
  const CUtensorMap* y_map = nullptr;
  int token = 0;        // the tile's first
  int output = 0;       // the warpgroup's first
  int tokens_left = 0;  // tokens of Y from the tile's first on
  MixedPart part;       // of this block
};

/// Vector j * kStrips + i is strip i of tokens 8 j to 8 j + 7. With few tokens a unit is one
/// warpgroup's half of it, 2 v + warpgroup.
template <class Decoder, int kTokens, int kStrips>
struct MixedExchange {
  using Sum = typename Decoder::Sum;
  using Sums = typename MixedConsumer<Decoder, kTokens, kStrips>::Sums;
  static constexpr MixedTile kTile = {kTokens, kStrips * 128};
  static constexpr int kVectors = num_vectors(kTile);
  static constexpr int kUnits = num_units(kTile) / kVectors;  // of a vector
  static constexpr int kUnitBytes = unit_bytes(kTile);

  /// Every block has a part of every tile, also of tokens that do not exist: one that only sends
  /// would be whole tiles ahead of the others, and barriers have but one bit for that.
  static __device__ __forceinline__ MixedPart part_of(const MixedArguments& args, int rank) {
    return {part_begin(args.of_units, rank), part_begin(args.of_units, rank + 1)};
  }

  /// This thread's place in what the first block has sent.
  static __device__ __forceinline__ uint32_t received(const MixedArguments& args,
                                                      const MixedRing& ring,
                                                      const MixedThread& self) {
    const int thread = kUnits == 2 ? self.in_warpgroup : self.thread;
    return ring.base + static_cast<uint32_t>(args.shared.received + thread * 16);
  }

  /// One thread, before the tile: the bytes that will come.
  static __device__ __forceinline__ void expect(const MixedArguments& args, const MixedRing& ring,
                                                int rank) {
    const MixedPart part = part_of(args, rank);
    ptx::mbarrier_arrive_expect_tx(
        ring.received(args), (args.schedule.num_ranks - 1) * (part.end - part.begin) * kUnitBytes);
  }

  /// Sends what others finish, and keeps what this block does beside what they will send.
  static __device__ __forceinline__ void send(const MixedArguments& args, const MixedRing& ring,
                                              const MixedThread& self, int rank, const Sums& sums) {
    const int each = args.of_units.each, rest = args.of_units.rest;
    const uint32_t mine =
        received(args, ring, self) + static_cast<uint32_t>(rank * args.shared.part_bytes);
    int owner = -1, begin = 0, end = 0;
    uint32_t to = 0, barrier = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int unit = v * kUnits + (kUnits == 2 ? self.warpgroup : 0);
      if (unit >= end) {
        // No part is empty: of two units one behind the other has another owner, or the next.
#pragma unroll
        for (int i = 0; i < kUnits; ++i) {
          if (unit < end) continue;
          begin = end;
          ++owner;
          end += each + (owner < rest ? 1 : 0);
        }
        to = owner == rank ? mine : ptx::mapa(mine, owner);
        barrier = ptx::mapa(ring.received(args), owner);
      }
      const uint32_t place = to + static_cast<uint32_t>((unit - begin) * kUnitBytes);
      if (owner == rank) {
        ptx::st_shared_x4(place, &sums[v % kStrips][v / kStrips * 4]);
      } else {
        ptx::st_async_x4(place, &sums[v % kStrips][v / kStrips * 4], barrier);
      }
    }
  }

  /// The thread's sums of unit `index` of the block's part, over all blocks in their order: in
  /// f32 too bits do not depend on who finishes.
  static __device__ __forceinline__ void total_of(const MixedArguments& args, const MixedRing& ring,
                                                  const MixedThread& self, int index,
                                                  Sum (&total)[4]) {
    uint32_t from = received(args, ring, self) + static_cast<uint32_t>(index * kUnitBytes);
    ptx::ld_shared_x4(from, total);
#pragma unroll 1
    for (int r = 1; r < args.schedule.num_ranks; ++r) {
      from += static_cast<uint32_t>(args.shared.part_bytes);
      Sum other[4];
      ptx::ld_shared_x4(from, other);
#pragma unroll
      for (int e = 0; e < 4; ++e) total[e] += other[e];
    }
  }

  /// The buffer may be written again, by every other block.
  static __device__ __forceinline__ void release(const MixedArguments& args, const MixedRing& ring,
                                                 const MixedThread& self, int rank) {
    __syncwarp();
    if (self.lane < args.schedule.num_ranks && self.lane != rank) {
      ptx::mbarrier_arrive_release_cluster(ptx::mapa(ring.drained(args), self.lane));
    }
  }
};

}  // namespace halley::cuda
