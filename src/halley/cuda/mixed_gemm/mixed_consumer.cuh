// The products of one segment: a warpgroup decodes its strips of 64 outputs and multiplies them.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_decode.cuh"
#include "halley/cuda/mixed_gemm/mixed_ring.cuh"

namespace halley::cuda {

/// A thread's place among the consumers.
struct MixedThread {
  int thread = 0;     // of kConsumerThreads
  int warpgroup = 0;  // 0 or 1
  int in_warpgroup = 0;
  int warp = 0;  // of the warpgroup
  int lane = 0;
  __device__ int row() const { return lane / 4; }          // g of fragments
  __device__ int column_pair() const { return lane % 4; }  // c of fragments
};

/// One warpgroup's part of a tile: kStrips times 64 outputs of kTokens tokens. Element 4 j + e of a
/// strip's sums is output row() + 8 * (e / 2) of the warp's 16, token 8 j + 2 * column_pair() + e %
/// 2.
template <class Decoder, int kTokens, int kStrips>
struct MixedConsumer {
  using Sum = typename Decoder::Sum;
  using Sums = Sum[kStrips][kTokens / 2];
  using Fragment = uint32_t[kStrips][Decoder::kRegisters];
  using Codes = uint4[kStrips];
  using Groups = typename Decoder::Group[kStrips];

  /// Rows of 128 bytes, eight of them 1024 bytes from the next, swizzled by 128 bytes (PTX ISA,
  /// "Matrix Descriptor Format").
  static constexpr uint64_t kDescriptor =
      uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16;

  /// Chunk and strip of the warpgroup's strip i: with two chunks each warpgroup has one.
  static __device__ __forceinline__ uint32_t strip_address(const MixedArguments& args,
                                                           uint32_t w_stage, int warpgroup, int i,
                                                           uint32_t* chunk) {
    *chunk = w_stage + static_cast<uint32_t>(kStrips == 2 ? warpgroup * args.chunk_bytes : 0);
    return *chunk + static_cast<uint32_t>((kStrips == 2 ? i : warpgroup) * kStripCodeBytes);
  }

  static __device__ __forceinline__ void load_codes(const MixedArguments& args,
                                                    const MixedThread& self, uint32_t w_stage,
                                                    int half, Codes& codes) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      uint32_t chunk = 0;
      const uint32_t strip = strip_address(args, w_stage, self.warpgroup, i, &chunk);
      codes[i] = load_shared_16(
          strip + static_cast<uint32_t>(half * kHalfCodeBytes + self.in_warpgroup * 16));
    }
  }

  static __device__ __forceinline__ void load_groups(const MixedArguments& args,
                                                     const MixedThread& self, uint32_t w_stage,
                                                     int step, Groups& groups) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      uint32_t chunk = 0;
      strip_address(args, w_stage, self.warpgroup, i, &chunk);
      const int strip = kStrips == 2 ? i : self.warpgroup;
      const int entry = (strip * 4 + self.warp) * 8 + self.row();
      groups[i] = Decoder::load_group(
          chunk + static_cast<uint32_t>(kChunkCodeBytes +
                                        (step >> args.group_shift) * group_bytes(Decoder::kKind) +
                                        entry * group_entry_bytes(Decoder::kKind)));
    }
  }

  /// The first or the second half of the 16 bytes: one step.
  template <bool kIsSecond>
  static __device__ __forceinline__ void decode(const Codes& codes, const Groups& groups,
                                                Fragment& fragment) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      Decoder::decode(fragment[i], kIsSecond ? codes[i].z : codes[i].x,
                      kIsSecond ? codes[i].w : codes[i].y, groups[i]);
    }
  }

  static __device__ __forceinline__ void start_products(const Fragment& fragment, uint32_t x_stage,
                                                        int step, int keeps, Sums& sums) {
    const int offset = is_s8(Decoder::kKind) ? step * 32 : step / 2 * kTokens * 128 + step % 2 * 64;
    const uint32_t tokens = x_stage + static_cast<uint32_t>(offset);
    const uint64_t descriptor = kDescriptor | (tokens & 0x3FFFFu) >> 4;
    fence_products();
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      Decoder::template multiply<kTokens>(sums[i], fragment[i], descriptor, keeps);
    }
    close_products();
  }

  static __device__ __forceinline__ void release(const MixedArguments& args, const MixedRing& ring,
                                                 const MixedThread& self, int stage) {
    __syncwarp();
    if (self.lane == 0) arrive(ring.empty(args, stage));
  }

  /// Sums over num_chunks >= 1 stages, from *stage on. While products of one step run, the next
  /// step is decoded: two fragments, one of which the tensor cores may be reading.
  static __device__ __forceinline__ void run(const MixedArguments& args, const MixedRing& ring,
                                             const MixedThread& self, int num_chunks,
                                             MixedStage* stage_place, Sums& sums) {
    MixedStage stage = *stage_place;
    Fragment even, odd;
    Codes first, second;
    Groups groups;
    int previous = 0;
    wait_barrier(ring.full(args, stage.index), stage.parity);
    uint32_t w_stage = ring.w_stage(args, stage.index);
    load_codes(args, self, w_stage, 0, first);
    load_codes(args, self, w_stage, 1, second);
    load_groups(args, self, w_stage, 0, groups);
    decode<false>(first, groups, even);
    for (int i = 0; i < num_chunks; ++i) {
      const uint32_t x_stage = ring.x_stage(args, stage.index);
      load_groups(args, self, w_stage, 1, groups);
      start_products(even, x_stage, 0, i > 0 ? 1 : 0, sums);
      wait_for_products<1>();
      if (i > 0) release(args, ring, self, previous);
      decode<true>(first, groups, odd);

      load_groups(args, self, w_stage, 2, groups);
      start_products(odd, x_stage, 1, 1, sums);
      wait_for_products<1>();
      decode<false>(second, groups, even);

      load_groups(args, self, w_stage, 3, groups);
      start_products(even, x_stage, 2, 1, sums);
      wait_for_products<1>();
      decode<true>(second, groups, odd);

      start_products(odd, x_stage, 3, 1, sums);
      previous = stage.index;
      stage.advance(args.num_stages);
      if (i + 1 < num_chunks) wait_barrier(ring.full(args, stage.index), stage.parity);
      // Behind the last stage this reads what is there, for nothing: a branch around loads would
      // make ptxas wait for the products.
      w_stage = ring.w_stage(args, stage.index);
      load_codes(args, self, w_stage, 0, first);
      load_codes(args, self, w_stage, 1, second);
      load_groups(args, self, w_stage, 0, groups);
      wait_for_products<1>();
      decode<false>(first, groups, even);
    }
    wait_for_products<0>();
    release(args, ring, self, previous);
    *stage_place = stage;
  }
};

}  // namespace halley::cuda
