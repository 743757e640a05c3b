// The products of one segment: a warpgroup decodes its strips of 64 outputs and multiplies them.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_decode.cuh"
#include "halley/cuda/mixed_gemm/mixed_ring.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/registers.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

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
/// 2. kIsOneGroup: chunks have one group, whose parameters are prepared once.
template <class Decoder, int kTokens, int kStrips, bool kIsOneGroup = false>
struct MixedConsumer {
  using Sum = typename Decoder::Sum;
  using Sums = Sum[kStrips][kTokens / 2];
  /// Steps that are decoded and multiplied at a time: of s8 two, whose fragments are small.
  static constexpr int kSteps = is_s8(Decoder::kKind) ? 2 : 1;
  static constexpr int kParts = kChunkSteps / kSteps;
  using Fragment = uint32_t[kSteps][kStrips][Decoder::kRegisters];
  using Codes = uint4[kStrips];
  /// 16 bytes have the codes of two steps, of 8 bits those of one.
  static constexpr bool kIsU8 = is_u8(Decoder::kKind);
  /// Groups of a part that may differ.
  static constexpr int kGroups = kIsOneGroup ? 1 : kSteps;
  using Groups = typename Decoder::Group[kGroups][kStrips];
  using Numbers = typename Decoder::Numbers[kGroups][kStrips];

  /// Rows of 128 bytes, eight of them 1024 bytes from the next, swizzled by 128 bytes (PTX ISA,
  /// "Matrix Descriptor Format").
  static constexpr uint64_t kDescriptor =
      uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16;
  /// Its lower half, of the stage at this address.
  static __device__ __forceinline__ uint32_t descriptor_of(uint32_t x_stage) {
    return static_cast<uint32_t>(kDescriptor) | (x_stage & 0x3FFFFu) >> 4;
  }

  /// Chunk and strip of the warpgroup's strip i: with two chunks each warpgroup has one.
  static __device__ __forceinline__ uint32_t strip_address(const MixedArguments& args,
                                                           uint32_t w_stage, int warpgroup, int i,
                                                           uint32_t* chunk) {
    *chunk = w_stage + static_cast<uint32_t>(kStrips == 2 ? warpgroup * args.chunk_bytes : 0);
    return *chunk + static_cast<uint32_t>((kStrips == 2 ? i : warpgroup) * 4 *
                                          row_code_bytes(Decoder::kKind));
  }

  /// `part`: half of a row's codes, of 8 bits a quarter.
  static __device__ __forceinline__ void load_codes(const MixedArguments& args,
                                                    const MixedThread& self, uint32_t w_stage,
                                                    int part, Codes& codes) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      uint32_t chunk = 0;
      const uint32_t strip = strip_address(args, w_stage, self.warpgroup, i, &chunk);
      codes[i] = ptx::ld_shared_b32x4(
          strip + static_cast<uint32_t>(self.warp * row_code_bytes(Decoder::kKind) +
                                        part * kHalfCodeBytes + self.lane * 16));
    }
  }

  /// The entry of the thread's rows of strip i.
  static __device__ __forceinline__ uint32_t group_address(const MixedArguments& args,
                                                           const MixedThread& self,
                                                           uint32_t w_stage, int i, int group) {
    uint32_t chunk = 0;
    strip_address(args, w_stage, self.warpgroup, i, &chunk);
    const int strip = kStrips == 2 ? i : self.warpgroup;
    const int entry = (strip * 4 + self.warp) * 8 + self.row();
    return chunk + static_cast<uint32_t>(chunk_code_bytes(Decoder::kKind) +
                                         group * group_bytes(Decoder::kKind) +
                                         entry * group_entry_bytes(Decoder::kKind));
  }

  static __device__ __forceinline__ void load_groups(const MixedArguments& args,
                                                     const MixedThread& self, uint32_t w_stage,
                                                     int part, Groups& groups) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int s = 0; s < kGroups; ++s) {
        const int group = kIsOneGroup ? 0 : (part * kSteps + s) >> args.group_shift;
        groups[s][i] = Decoder::load_group(group_address(args, self, w_stage, i, group));
      }
    }
  }

  /// The steps of one part. Of 8 bits `first` has the codes of any step.
  template <int kPart>
  static __device__ __forceinline__ void decode(const Codes& first, const Codes& second,
                                                const Groups& groups, Numbers& numbers,
                                                Fragment& fragment) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int step = kPart * kSteps + s;
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
        if (!kIsOneGroup || step == 0) numbers[s][i] = Decoder::numbers_of(groups[s][i]);
        if constexpr (kIsU8) {
          Decoder::decode(fragment[s][i], first[i], numbers[kIsOneGroup ? 0 : s][i]);
        } else {
          const uint4& codes = step < 2 ? first[i] : second[i];
          Decoder::decode(fragment[s][i], step % 2 == 0 ? codes.x : codes.z,
                          step % 2 == 0 ? codes.y : codes.w, numbers[kIsOneGroup ? 0 : s][i]);
        }
      }
    }
  }

  template <int kPart>
  static __device__ __forceinline__ void start_products(const Fragment& fragment,
                                                        uint32_t x_descriptor, int keeps,
                                                        Sums& sums) {
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int step = kPart * kSteps + s;
      const int offset =
          is_s8(Decoder::kKind) ? step * 32 : step / 2 * kTokens * 128 + step % 2 * 64;
      const uint32_t lower = x_descriptor + static_cast<uint32_t>(offset / 16);
      const uint64_t descriptor = kDescriptor >> 32 << 32 | lower;
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
        Decoder::template multiply<kTokens>(sums[i], fragment[s][i], descriptor,
                                            s == 0 ? keeps : 1);
      }
    }
    ptx::wgmma_commit_group();
  }

  static __device__ __forceinline__ void release(const MixedArguments& args, const MixedRing& ring,
                                                 const MixedThread& self, int stage) {
    release(self, ring.empty(args, stage));
  }
  /// The stage with this barrier.
  static __device__ __forceinline__ void release(const MixedThread& self, uint32_t empty) {
    __syncwarp();
    if (self.lane == 0) ptx::mbarrier_arrive(empty);
  }

  /// What run() has in registers from part to part.
  struct State {
    ptx::PipelineState stage;
    bool is_first = true, is_last = false;  // of the segment's stages
    uint32_t is_there = 0;                  // the next stage
    uint32_t empties = 0;                   // barrier of stage 0
    uint32_t empty = 0;                     // of the stage that is multiplied
    uint32_t previous_empty = 0;            // of the one before
    uint32_t x_descriptor = 0;
    uint32_t w_stage = 0;  // of the codes that are decoded next
    Fragment fragments[2];
    Codes first, second;
    Groups groups;
    Numbers numbers;
  };

  static __device__ __forceinline__ void load_stage(const MixedArguments& args,
                                                    const MixedRing& ring, const MixedThread& self,
                                                    State& state) {
    state.w_stage = ring.w_stage(args, state.stage.index);
    load_codes(args, self, state.w_stage, 0, state.first);
    if constexpr (!kIsU8) load_codes(args, self, state.w_stage, 1, state.second);
    load_groups(args, self, state.w_stage, 0, state.groups);
  }

  /// Behind the last stage this reads what is there, for nothing: a branch around loads would make
  /// ptxas wait for products.
  static __device__ __forceinline__ void load_next_stage(const MixedArguments& args,
                                                         const MixedRing& ring,
                                                         const MixedThread& self, State& state) {
    if ((state.is_there | static_cast<uint32_t>(state.is_last)) == 0) {
      ptx::mbarrier_wait_parity(ring.full(args, state.stage.index), state.stage.parity);
    }
    load_stage(args, ring, self, state);
  }

  /// Starts the products of a part; while they run, the next part is decoded: two fragments, one of
  /// which the tensor cores may be reading.
  template <int kPart>
  static __device__ __forceinline__ void run_part(const MixedArguments& args, const MixedRing& ring,
                                                  const MixedThread& self, State& state,
                                                  Sums& sums) {
    // Before the stage's last products are started, so that those of two parts hide what loads
    // take.
    if constexpr (kPart + 1 == kParts) {
      load_next_stage(args, ring, self, state);
    } else {
      if constexpr (kIsU8) load_codes(args, self, state.w_stage, kPart + 1, state.first);
      if constexpr (!kIsOneGroup) load_groups(args, self, state.w_stage, kPart + 1, state.groups);
    }
    start_products<kPart>(state.fragments[kPart % 2], state.x_descriptor,
                          kPart > 0 || !state.is_first ? 1 : 0, sums);
    if constexpr (kPart == 0) {
      // Asked for here, the answer is there when the stage is wanted.
      state.stage.advance(args.num_stages);
      state.is_there =
          ptx::mbarrier_test_wait_parity(ring.full(args, state.stage.index), state.stage.parity);
    }
    ptx::wgmma_wait_group<1>();
    if (kPart == 0 && !state.is_first) release(self, state.previous_empty);
    decode<(kPart + 1) % kParts>(state.first, state.second, state.groups, state.numbers,
                                 state.fragments[(kPart + 1) % 2]);
  }

  /// Sums over num_chunks >= 1 stages, from *stage on.
  static __device__ __forceinline__ void run(const MixedArguments& args, const MixedRing& ring,
                                             const MixedThread& self, int num_chunks,
                                             ptx::PipelineState* stage, Sums& sums) {
    if constexpr (Decoder::kKind == MixedKind::kU4GroupS8 && !kIsOneGroup) {
      if (1 << args.group_shift >= kChunkSteps) {
        MixedConsumer<Decoder, kTokens, kStrips, true>::run(args, ring, self, num_chunks, stage,
                                                            sums);
        return;
      }
    }
    State state;
    state.stage = *stage;
    // Opaque: ptxas would read what it is made of anew, each time, which takes long.
    state.empties = ring.empty(args, 0);
    ptx::opaque(state.empties);
    ptx::mbarrier_wait_parity(ring.full(args, stage->index), stage->parity);
    load_stage(args, ring, self, state);
    decode<0>(state.first, state.second, state.groups, state.numbers, state.fragments[0]);
    for (int i = 0; i < num_chunks; ++i) {
      state.x_descriptor = descriptor_of(ring.x_stage(args, state.stage.index));
      state.is_first = i == 0;
      state.is_last = i + 1 == num_chunks;
      state.previous_empty = state.empty;
      state.empty = state.empties + static_cast<uint32_t>(state.stage.index * 8);
      run_part<0>(args, ring, self, state, sums);
      run_part<1>(args, ring, self, state, sums);
      if constexpr (kParts == 4) {
        run_part<2>(args, ring, self, state, sums);
        run_part<3>(args, ring, self, state, sums);
      }
    }
    ptx::wgmma_wait_group<0>();
    release(self, state.empty);
    *stage = state.stage;
  }
};

}  // namespace halley::cuda
