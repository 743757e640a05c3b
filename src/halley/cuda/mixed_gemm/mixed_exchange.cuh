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

/// Vector j * kStrips + i is strip i of tokens 8 j to 8 j + 7. Warpgroups that share sums are
/// sharers: those of the first block, then those of the second.
template <class Decoder, int kTokens, int kStrips, int kWarpgroups, int kSplits>
struct MixedExchange {
  using Sum = typename Decoder::Sum;
  using Sums = typename MixedConsumer<Decoder, kTokens, kStrips, kSplits>::Sums;
  static constexpr int kVectors = kTokens / 8 * kStrips;
  static constexpr int kParts = kWarpgroups / kSplits;

  static __device__ __forceinline__ int num_sharers(const MixedArguments& args) {
    return args.schedule.num_ranks * kSplits;
  }
  static __device__ __forceinline__ int sharer_of(const MixedThread& self, int rank) {
    return rank * kSplits + (kSplits > 1 ? self.split : 0);
  }

  /// Every sharer has a part of every tile, also of tokens that do not exist: a block that only
  /// sends would be whole tiles ahead of the others, and barriers have but one bit for that.
  static __device__ __forceinline__ MixedPart part_of(const MixedArguments& args, int sharer) {
    const int sharers = num_sharers(args);
    return {part_begin(kVectors, sharers, sharer), part_begin(kVectors, sharers, sharer + 1)};
  }

  /// This thread's place in what the first sharer has sent to a warpgroup.
  static __device__ __forceinline__ uint32_t received(const MixedArguments& args,
                                                      const MixedRing& ring,
                                                      const MixedThread& self, int warpgroup) {
    const int each = num_sharers(args) * args.shared.staged_vectors * kVectorBytes;
    return ring.base + static_cast<uint32_t>(args.shared.received + warpgroup * each +
                                             self.in_warpgroup * 16);
  }

  /// One thread, before the tile: the bytes that will come from other blocks.
  static __device__ __forceinline__ void expect(const MixedArguments& args, const MixedRing& ring,
                                                int rank) {
    // The parts of a block's sharers are consecutive.
    const int vectors = (part_of(args, rank * kSplits + kSplits - 1).end -
                         part_of(args, rank * kSplits).begin);
    arrive_expecting(ring.received(args),
                     (args.schedule.num_ranks - 1) * kWarpgroups * vectors * kVectorBytes);
  }

  /// Sends what others finish, and keeps what this warpgroup does beside what they will send.
  static __device__ __forceinline__ void send(const MixedArguments& args, const MixedRing& ring,
                                              const MixedThread& self, int rank, const Sums& sums) {
    const int sharers = num_sharers(args);
    const int each = kVectors / sharers, rest = kVectors % sharers;
    const auto slot = static_cast<uint32_t>(sharer_of(self, rank) * args.shared.staged_vectors *
                                            kVectorBytes);
    int owner = -1, next = 0;
    bool is_here = true;
    uint32_t to = 0, barrier = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v == next) {
        ++owner;
        next += each + (owner < rest ? 1 : 0);
        const int owner_rank = owner / kSplits;
        const int warpgroup = owner % kSplits * kParts + self.part;
        is_here = owner_rank == rank;
        to = received(args, ring, self, warpgroup) + slot;
        if (!is_here) {
          to = address_in_block(to, owner_rank);
          barrier = address_in_block(ring.received(args), owner_rank);
        }
      }
      if (is_here) {
        store_four(to, &sums[v % kStrips][v / kStrips * 4]);
      } else {
        send_four(to, &sums[v % kStrips][v / kStrips * 4], barrier);
      }
      to += kVectorBytes;
    }
  }

  /// The thread's sums of vector `index` of the warpgroup's part, over all sharers in their order:
  /// in f32 too bits do not depend on who finishes.
  static __device__ __forceinline__ void total_of(const MixedArguments& args, const MixedRing& ring,
                                                  const MixedThread& self, int index,
                                                  Sum (&total)[4]) {
    uint32_t from = received(args, ring, self, self.warpgroup) +
                    static_cast<uint32_t>(index * kVectorBytes);
    load_four(from, total);
#pragma unroll 1
    for (int r = 1; r < num_sharers(args); ++r) {
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
