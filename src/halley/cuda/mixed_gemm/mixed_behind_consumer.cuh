// The products of one segment of 16-bit kinds with 32 and 48 tokens where every chunk is one group:
// by wgmma, scaled behind it.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::cuda {

/// As MixedConsumer. Codes less their zero are multiplied, and the products of a chunk are scaled
/// in f32: no weight is rounded. While a step's products run, the next step is decoded.
template <class Decoder, int kTokens, int kStrips>
struct MixedBehindConsumer {
  using Base = MixedConsumer<Decoder, kTokens, kStrips>;
  using Sums = typename Base::Sums;
  static constexpr int kStepBytes = kStepInputs * 2;  // of a token's inputs
  static constexpr int kRowBytes = 128;

  struct State {
    ptx::PipelineState stage;
    bool is_last = false;     // of the segment's stages
    uint64_t descriptor = 0;  // of the stage's tokens
    uint32_t w_stage = 0;     // of the codes that are loaded next
    uint32_t fragments[2][kStrips][8];
    uint4 first[kStrips], second[kStrips];  // codes of two steps each
    typename Decoder::Group groups[kStrips];
    PlainZeros zeros[kStrips];
    float2 scales[kStrips], next_scales[kStrips];
    Sums products;
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
    for (int i = 0; i < kStrips; ++i) {
      state.zeros[i] = Decoder::zeros_of(state.groups[i]);
      state.next_scales[i] = Decoder::scales_of(state.groups[i]);
    }
  }

  /// Step 4 is the next stage's first one.
  template <int kStep>
  static __device__ __forceinline__ void decode(State& state) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      const uint4& codes = kStep % kChunkSteps < 2 ? state.first[i] : state.second[i];
      uint32_t lower[4], upper[4];
      Decoder::decode_less_zero(lower, kStep % 2 == 0 ? codes.x : codes.z, state.zeros[i]);
      Decoder::decode_less_zero(upper, kStep % 2 == 0 ? codes.y : codes.w, state.zeros[i]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        state.fragments[kStep % 2][i][j] = lower[j];
        state.fragments[kStep % 2][i][4 + j] = upper[j];
      }
    }
  }

  template <int kStep>
  static __device__ __forceinline__ void start_products(State& state) {
    // In units of 16 bytes; addresses of shared memory leave room for it.
    constexpr int kOffset = (kStep / 2 * kTokens * kRowBytes + kStep % 2 * kStepBytes) / 16;
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      Decoder::template multiply<kTokens>(state.products[i], state.fragments[kStep % 2][i],
                                          state.descriptor + kOffset, kStep > 0 ? 1 : 0);
    }
    ptx::wgmma_commit_group();
  }

  static __device__ __forceinline__ void end_group(State& state, Sums& sums) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) {
        const float scale = j % 4 < 2 ? state.scales[i].x : state.scales[i].y;
        sums[i][j] = fmaf(scale, state.products[i][j], sums[i][j]);
      }
      state.scales[i] = state.next_scales[i];
    }
  }

  template <int kStep>
  static __device__ __forceinline__ void run_step(const MixedArguments& args, const MixedRing& ring,
                                                  const MixedThread& self, State& state) {
    if constexpr (kStep == 0) Base::load_codes(args, self, state.w_stage, 1, state.second);
    if constexpr (kStep == 2) {
      state.stage.advance(args.num_stages);
      // Behind the last stage what is there is read, for nothing: a branch around loads would make
      // ptxas wait for products.
      if (!state.is_last)
        ptx::mbarrier_wait_parity(ring.full(args, state.stage.index), state.stage.parity);
      load_stage(args, ring, self, state);
    }
    start_products<kStep>(state);
    ptx::wgmma_wait_group<1>();
    if constexpr (kStep + 1 == kChunkSteps) begin_group(state);
    decode<kStep + 1>(state);
  }

  /// Sums over num_chunks >= 1 stages, from *stage on.
  static __device__ __forceinline__ void run(const MixedArguments& args, const MixedRing& ring,
                                             const MixedThread& self, int num_chunks,
                                             ptx::PipelineState* stage, Sums& sums) {
    State state;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) sums[i][j] = 0;
    }
    state.stage = *stage;
    ptx::mbarrier_wait_parity(ring.full(args, stage->index), stage->parity);
    load_stage(args, ring, self, state);
    begin_group(state);
#pragma unroll
    for (int i = 0; i < kStrips; ++i) state.scales[i] = state.next_scales[i];
    decode<0>(state);
#pragma unroll 1
    for (int i = 0; i < num_chunks; ++i) {
      const int current = state.stage.index;
      const uint32_t tokens = ring.x_stage(args, current);
      state.descriptor = Base::kDescriptor | (tokens & 0x3FFFFu) >> 4;
      state.is_last = i + 1 == num_chunks;
      run_step<0>(args, ring, self, state);
      run_step<1>(args, ring, self, state);
      run_step<2>(args, ring, self, state);
      run_step<3>(args, ring, self, state);
      ptx::wgmma_wait_group<0>();
      Base::release(args, ring, self, current);
      end_group(state, sums);
    }
    *stage = state.stage;
  }
};

}  // namespace halley::cuda
