// The sums of a tile that the blocks of a cluster share: each block finishes a part of them, which
// the others send to its shared memory.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"

namespace halley::cuda {

/// Vectors of a tile that a block finishes.
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

/// Vector j * kStrips + i is strip i of tokens 8 j to 8 j + 7.
template <class Decoder, int kTokens, int kStrips>
struct MixedExchange {
  using Sum = typename Decoder::Sum;
  using Sums = typename MixedConsumer<Decoder, kTokens, kStrips>::Sums;
  static constexpr int kVectors = kTokens / 8 * kStrips;

  /// Every block has a part of every tile, also of tokens that do not exist: one that only sends
  /// would be whole tiles ahead of the others, and barriers have but one bit for that.
  static __device__ __forceinline__ MixedPart part_of(const MixedArguments& args, int rank) {
    const int ranks = args.schedule.num_ranks;
    return {part_begin(kVectors, ranks, rank), part_begin(kVectors, ranks, rank + 1)};
  }

  /// This thread's place in what the first block has sent.
  static __device__ __forceinline__ uint32_t received(const MixedArguments& args,
                                                      const MixedRing& ring,
                                                      const MixedThread& self) {
    return ring.base + static_cast<uint32_t>(args.shared.received + self.thread * 16);
  }

  /// One thread, before the tile: the bytes that will come.
  static __device__ __forceinline__ void expect(const MixedArguments& args, const MixedRing& ring,
                                                int rank) {
    const MixedPart part = part_of(args, rank);
    arrive_expecting(ring.received(args),
                     (args.schedule.num_ranks - 1) * (part.end - part.begin) * kVectorBytes);
  }

  /// Sends what others finish, and keeps what this block does beside what they will send.
  static __device__ __forceinline__ void send(const MixedArguments& args, const MixedRing& ring,
                                              const MixedThread& self, int rank, const Sums& sums) {
    const int ranks = args.schedule.num_ranks;
    const int each = kVectors / ranks, rest = kVectors % ranks;
    const uint32_t mine = received(args, ring, self) +
                          static_cast<uint32_t>(rank * args.shared.staged_vectors * kVectorBytes);
    int owner = -1, next = 0;
    uint32_t to = 0, barrier = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v == next) {
        ++owner;
        next += each + (owner < rest ? 1 : 0);
        to = owner == rank ? mine : address_in_block(mine, owner);
        barrier = address_in_block(ring.received(args), owner);
      }
      if (owner == rank) {
        store_four(to, &sums[v % kStrips][v / kStrips * 4]);
      } else {
        send_four(to, &sums[v % kStrips][v / kStrips * 4], barrier);
      }
      to += kVectorBytes;
    }
  }

  /// The thread's sums of vector `index` of the block's part, over all blocks in their order: in
  /// f32 too bits do not depend on who finishes.
  static __device__ __forceinline__ void total_of(const MixedArguments& args, const MixedRing& ring,
                                                  const MixedThread& self, int index,
                                                  Sum (&total)[4]) {
    uint32_t from = received(args, ring, self) + static_cast<uint32_t>(index * kVectorBytes);
    load_four(from, total);
#pragma unroll 1
    for (int r = 1; r < args.schedule.num_ranks; ++r) {
      from += static_cast<uint32_t>(args.shared.staged_vectors * kVectorBytes);
      Sum other[4];
      load_four(from, other);
#pragma unroll
      for (int e = 0; e < 4; ++e) total[e] += other[e];
    }
  }

  /// The buffer may be written again, by every other block.
  static __device__ __forceinline__ void release(const MixedArguments& args, const MixedRing& ring,
                                                 const MixedThread& self, int rank) {
    __syncwarp();
    if (self.lane < args.schedule.num_ranks && self.lane != rank) {
      arrive_in_cluster(address_in_block(ring.drained(args), self.lane));
    }
  }
};

}  // namespace halley::cuda
