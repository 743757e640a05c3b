// The products of one segment of 16-bit kinds where every chunk is one group: its parameters are
// read once.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::cuda {

/// As MixedConsumer, step by step (32 inputs), with fewer instructions beside those that decode:
/// the tensor cores keep the registers busy, so that each one takes time of its own.
template <class Decoder, int kTokens, int kStrips>
struct MixedGroupConsumer {
  using Base = MixedConsumer<Decoder, kTokens, kStrips>;
  using Sums = typename Base::Sums;
  static constexpr int kStepBytes = kStepInputs * 2;  // of a token's inputs
  static constexpr int kRowBytes = 128;

  struct State {
    ptx::PipelineState stage;
    bool is_first = true, is_last = false;  // of the segment's stages
    int previous = 0;                       // the stage before
    uint64_t descriptor = 0;                // of the stage's tokens
    uint32_t w_stage = 0;                   // of the codes that are loaded next
    uint32_t fragments[2][kStrips][8];
    uint4 first[kStrips], second[kStrips];  // codes of two steps each, of 8 bits of one in turn
    typename Decoder::Group groups[kStrips];
    GroupPairs pairs[kStrips];
  };

  /// The stage's first codes and its group.
  static __device__ __forceinline__ void load_stage(const MixedArguments& args,
                                                    const MixedRing& ring, const MixedThread& self,
                                                    State& state) {
    state.w_stage = ring.w_stage(args, state.stage.index);
    Base::load_codes(args, self, state.w_stage, 0, state.first);
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      state.groups[i] =
          Decoder::load_group(Base::group_address(args, self, state.w_stage, i, /*group=*/0));
    }
  }

  static __device__ __forceinline__ void begin_group(State& state) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) state.pairs[i] = Decoder::pairs_of(state.groups[i]);
  }

  /// Step 4 is the next stage's first one.
  template <int kStep>
  static __device__ __forceinline__ void decode(State& state) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      uint32_t(&fragment)[8] = state.fragments[kStep % 2][i];
      if constexpr (Base::kIsU8) {
        Decoder::decode_step(fragment, kStep % 2 == 0 ? state.first[i] : state.second[i],
                             state.pairs[i]);
      } else {
        const uint4& codes = kStep % kChunkSteps < 2 ? state.first[i] : state.second[i];
        Decoder::decode_word(fragment, kStep % 2 == 0 ? codes.x : codes.z, state.pairs[i]);
        Decoder::decode_word(fragment + 4, kStep % 2 == 0 ? codes.y : codes.w, state.pairs[i]);
      }
    }
  }

  template <int kStep>
  static __device__ __forceinline__ void start_products(const State& state, Sums& sums) {
    // In units of 16 bytes; addresses of shared memory leave room for it.
    constexpr int kOffset = (kStep / 2 * kTokens * kRowBytes + kStep % 2 * kStepBytes) / 16;
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      Decoder::template multiply<kTokens>(sums[i], state.fragments[kStep % 2][i],
                                          state.descriptor + kOffset,
                                          kStep > 0 || !state.is_first ? 1 : 0);
    }
    ptx::wgmma_commit_group();
  }

  template <int kStep>
  static __device__ __forceinline__ void run_step(const MixedArguments& args, const MixedRing& ring,
                                                  const MixedThread& self, State& state,
                                                  Sums& sums) {
    // Of 8 bits those of the next step, in place of those before this one's.
    if constexpr (kStep == 0 || (Base::kIsU8 && kStep < 3)) {
      Base::load_codes(args, self, state.w_stage, kStep + 1,
                       kStep % 2 == 0 ? state.second : state.first);
    }
    if constexpr (kStep == 2) {
      state.previous = state.stage.index;
      state.stage.advance(args.num_stages);
      // Behind the last stage what is there is read, for nothing: a branch around loads would make
      // ptxas wait for products.
      if (!state.is_last)
        ptx::mbarrier_wait_parity(ring.full(args, state.stage.index), state.stage.parity);
      load_stage(args, ring, self, state);
    }
    start_products<kStep>(state, sums);
    ptx::wgmma_wait_group<1>();
    if constexpr (kStep == 1) {
      if (!state.is_first) Base::release(args, ring, self, state.previous);
    }
    if constexpr (kStep + 1 == kChunkSteps) begin_group(state);
    decode<kStep + 1>(state);
  }

  /// Sums over num_chunks >= 1 stages, from *stage on.
  static __device__ __forceinline__ void run(const MixedArguments& args, const MixedRing& ring,
                                             const MixedThread& self, int num_chunks,
                                             ptx::PipelineState* stage, Sums& sums) {
    State state;
    state.stage = *stage;
    ptx::mbarrier_wait_parity(ring.full(args, stage->index), stage->parity);
    load_stage(args, ring, self, state);
    begin_group(state);
    decode<0>(state);
    for (int i = 0; i < num_chunks; ++i) {
      const uint32_t tokens = ring.x_stage(args, state.stage.index);
      state.descriptor = Base::kDescriptor | (tokens & 0x3FFFFu) >> 4;
      state.is_first = i == 0;
      state.is_last = i + 1 == num_chunks;
      run_step<0>(args, ring, self, state, sums);
      run_step<1>(args, ring, self, state, sums);
      run_step<2>(args, ring, self, state, sums);
      run_step<3>(args, ring, self, state, sums);
    }
    ptx::wgmma_wait_group<0>();
    Base::release(args, ring, self, state.previous);
    *stage = state.stage;
  }
};

}  // namespace halley::cuda
