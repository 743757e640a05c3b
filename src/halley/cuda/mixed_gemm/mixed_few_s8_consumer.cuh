// The products of one segment of s8 kinds with 16 tokens, by mma.sync: a block that is alone on its
// SM waits less for its own products than with wgmma.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"

namespace halley::cuda {

/// As MixedConsumer. A step of 32 inputs is a row of 32 bytes of each token.
template <class Decoder, int kStrips, bool kIsOneGroup = false>
struct MixedFewS8Consumer {
  static constexpr int kTokens = 16;
  using Sum = typename Decoder::Sum;
  using Base = MixedConsumer<Decoder, kTokens, kStrips>;
  using Sums = typename Base::Sums;
  static constexpr int kInputsAhead = 2;  // steps

  struct State {
    uint32_t tokens = 0;       // of the stage that is multiplied: the lane's row
    uint32_t next_tokens = 0;  // of the stage behind it
    uint32_t w_stage = 0, next_w_stage = 0;
    uint4 first[kStrips];                     // codes of steps 0 and 1
    uint4 second[kStrips];                    // of 2 and 3
    uint32_t x[kChunkSteps][4];               // operands B of steps
    typename Decoder::Group groups[kStrips];  // of the next step, as they lie in memory
    typename Decoder::Numbers numbers[kStrips];
    Sum sums[kStrips][2][4];  // of eight tokens each
  };

  template <int kStep>
  static __device__ __forceinline__ void load_inputs(State& state) {
    const uint32_t row = kStep < kChunkSteps ? state.tokens : state.next_tokens;
    ptx::ldmatrix_x4(state.x[kStep % kChunkSteps],
                     row ^ static_cast<uint32_t>(kStep % kChunkSteps * 32));
  }

  template <int kStep>
  static __device__ __forceinline__ void load_groups(const MixedArguments& args,
                                                     const MixedThread& self, State& state) {
    const int group = kIsOneGroup ? 0 : kStep % kChunkSteps >> args.group_shift;
    const uint32_t stage = kStep < kChunkSteps ? state.w_stage : state.next_w_stage;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      state.groups[i] = Decoder::load_group(Base::group_address(args, self, stage, i, group));
    }
  }

  template <int kStep>
  static __device__ __forceinline__ void run_step(const MixedArguments& args,
                                                  const MixedThread& self, State& state) {
    if constexpr (kStep == 0) Base::load_codes(args, self, state.w_stage, 1, state.second);
    load_inputs<kStep + kInputsAhead>(state);
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      if (!kIsOneGroup || kStep == 0) {
        state.numbers[i] = Decoder::plain_numbers_of(state.groups[i]);
      }
      const uint4& codes = kStep < 2 ? state.first[i] : state.second[i];
      uint32_t fragment[4];
      Decoder::decode_plain(fragment, kStep % 2 == 0 ? codes.x : codes.z,
                            kStep % 2 == 0 ? codes.y : codes.w, state.numbers[i]);
      const uint32_t(&x)[4] = state.x[kStep];
      Decoder::multiply_narrow(state.sums[i][0], fragment, x[0], x[1]);
      Decoder::multiply_narrow(state.sums[i][1], fragment, x[2], x[3]);
    }
    if constexpr (!kIsOneGroup || kStep + 1 == kChunkSteps) {
      load_groups<kStep + 1>(args, self, state);
    }
  }

  /// Sums over num_chunks >= 1 stages, from *stage on.
  static __device__ __forceinline__ void run(const MixedArguments& args, const MixedRing& ring,
                                             const MixedThread& self, int num_chunks,
                                             ptx::PipelineState* stage, Sums& sums) {
    if constexpr (Decoder::kKind == MixedKind::kU4GroupS8 && !kIsOneGroup) {
      if (1 << args.group_shift >= kChunkSteps) {
        MixedFewS8Consumer<Decoder, kStrips, true>::run(args, ring, self, num_chunks, stage, sums);
        return;
      }
    }
    State state;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) state.sums[i][j / 4][j % 4] = 0;
    }
    // Matrices of eight tokens and 16 inputs, whose rows lanes name.
    const int token = self.lane % 8 + self.lane / 16 * 8, piece = self.lane / 8 % 2;
    const auto row = static_cast<uint32_t>(token * 128 + ((piece ^ (token % 8)) << 4));
    ptx::PipelineState next = *stage;
    ptx::mbarrier_wait_parity(ring.full(args, next.index), next.parity);
    state.w_stage = state.next_w_stage = ring.w_stage(args, next.index);
    state.tokens = state.next_tokens = ring.x_stage(args, next.index) + row;
    Base::load_codes(args, self, state.w_stage, 0, state.first);
    load_groups<0>(args, self, state);
    load_inputs<0>(state);
    load_inputs<1>(state);
#pragma unroll 1
    for (int c = 0; c < num_chunks; ++c) {
      const int current = next.index;
      next.advance(args.num_stages);
      // Asked for here, the answer is there when the stage is wanted.
      const uint32_t is_there =
          ptx::mbarrier_test_wait_parity(ring.full(args, next.index), next.parity);
      state.tokens = state.next_tokens;
      state.w_stage = state.next_w_stage;
      run_step<0>(args, self, state);
      run_step<1>(args, self, state);
      // Behind the last stage what is there is read, for nothing.
      if (is_there == 0 && c + 1 < num_chunks) {
        ptx::mbarrier_wait_parity(ring.full(args, next.index), next.parity);
      }
      state.next_w_stage = ring.w_stage(args, next.index);
      state.next_tokens = ring.x_stage(args, next.index) + row;
      Base::load_codes(args, self, state.next_w_stage, 0, state.first);
      run_step<2>(args, self, state);
      run_step<3>(args, self, state);
      Base::release(args, ring, self, current);
    }
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[i][j] = state.sums[i][j / 4][j % 4];
    }
    *stage = next;
  }
};

}  // namespace halley::cuda
