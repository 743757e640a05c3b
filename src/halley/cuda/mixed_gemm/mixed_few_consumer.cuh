// The products of one segment of 16-bit kinds with 16 tokens, by mma.sync: while wgmma takes its
// operands from registers a warp's scheduler issues nothing, and with few tokens that is all of its
// time.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"

namespace halley::cuda {

/// As MixedConsumer. Codes less their zero are multiplied, a word (16 inputs) at a time, and the
/// products of a group are then scaled in f32: no weight is rounded. Where a chunk is not one group
/// every step (two words) is taken for one.
template <class Decoder, int kStrips, bool kIsOneGroup>
struct MixedFewConsumer {
  static constexpr int kTokens = 16;
  using Base = MixedConsumer<Decoder, kTokens, kStrips>;
  using Sums = typename Base::Sums;
  using Group = typename Decoder::Group;
  static constexpr int kWords = kChunkInputs / 16;
  static constexpr int kGroupWords = kIsOneGroup ? kWords : kStepInputs / 16;
  static constexpr int kGroups = kWords / kGroupWords;  // of a chunk
  static constexpr int kInputsAhead = 3;                // words

  struct State {
    uint32_t tokens = 0;       // of the stage that is multiplied: the lane's row
    uint32_t next_tokens = 0;  // of the stage behind it
    uint32_t w_stage = 0, next_w_stage = 0;
    uint4 first[kStrips];             // codes of words 0 to 3; of 8 bits of two words in turn
    uint4 second[kStrips];            // of 4 to 7
    uint32_t x[kInputsAhead + 1][4];  // operands B of words
    uint32_t fragments[2][kStrips][4];
    Group groups[kStrips];  // of the next group, as they lie in memory
    PlainZeros zeros[kStrips];
    float2 scales[kStrips], next_scales[kStrips];
    float products[kStrips][kTokens / 2];
  };

  /// Of the group that begins with this word.
  template <int kWord>
  static __device__ __forceinline__ void load_groups(const MixedArguments& args,
                                                     const MixedThread& self, State& state) {
    const int group = kGroups == 1 ? 0 : kWord % kWords / 2 >> args.group_shift;
    const uint32_t stage = kWord < kWords ? state.w_stage : state.next_w_stage;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      state.groups[i] = Decoder::load_group(Base::group_address(args, self, stage, i, group));
    }
  }

  static __device__ __forceinline__ void begin_group(State& state) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      state.zeros[i] = Decoder::zeros_of(state.groups[i]);
      state.next_scales[i] = Decoder::scales_of(state.groups[i]);
    }
  }

  template <int kWord>
  static __device__ __forceinline__ void decode(State& state) {
    constexpr int kIn = kWord % 4;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      uint32_t(&fragment)[4] = state.fragments[kWord % 2][i];
      if constexpr (Base::kIsU8) {
        const uint4& codes = kIn < 2 ? state.first[i] : state.second[i];
        Decoder::decode_less_zero(fragment, kIn % 2 == 0 ? codes.x : codes.z,
                                  kIn % 2 == 0 ? codes.y : codes.w, state.zeros[i]);
      } else {
        const uint4& codes = kWord % kWords < 4 ? state.first[i] : state.second[i];
        const uint32_t word = kIn == 0   ? codes.x
                              : kIn == 1 ? codes.y
                              : kIn == 2 ? codes.z
                                         : codes.w;
        Decoder::decode_less_zero(fragment, word, state.zeros[i]);
      }
    }
  }

  /// Those behind what is in registers, in place of what has been decoded.
  template <int kWord>
  static __device__ __forceinline__ void load_codes(const MixedArguments& args,
                                                    const MixedThread& self, State& state) {
    if constexpr (!Base::kIsU8) {
      if constexpr (kWord == 0) Base::load_codes(args, self, state.w_stage, 1, state.second);
      if constexpr (kWord == 4) Base::load_codes(args, self, state.next_w_stage, 0, state.first);
    } else if constexpr (kWord % 2 == 1) {
      constexpr int kPart = (kWord + 3) / 2;  // of two words
      Base::load_codes(args, self, kPart < 4 ? state.w_stage : state.next_w_stage, kPart % 4,
                       kPart % 2 == 0 ? state.first : state.second);
    }
  }

  /// Rows of 128 bytes have four words, swizzled.
  template <int kWord>
  static __device__ __forceinline__ void load_inputs(State& state) {
    constexpr int kIn = kWord % kWords;
    const uint32_t row = kWord < kWords ? state.tokens : state.next_tokens;
    ptx::ldmatrix_x4(state.x[kWord % (kInputsAhead + 1)],
                     (row ^ static_cast<uint32_t>(kIn % 4 * 32)) +
                         static_cast<uint32_t>(kIn / 4 * kTokens * 128));
  }

  static __device__ __forceinline__ void end_group(State& state, Sums& sums) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) {
        const float scale = j % 4 < 2 ? state.scales[i].x : state.scales[i].y;
        sums[i][j] = fmaf(scale, state.products[i][j], sums[i][j]);
        state.products[i][j] = 0;
      }
      state.scales[i] = state.next_scales[i];
    }
  }

  /// A word ahead is decoded, and inputs are loaded further ahead, so that little is waited for.
  template <int kWord>
  static __device__ __forceinline__ void run_word(const MixedArguments& args,
                                                  const MixedThread& self, State& state,
                                                  Sums& sums) {
    load_codes<kWord>(args, self, state);
    if constexpr (kGroups > 1 ? kWord % 2 == 0 : kWord == kWords / 2) {
      load_groups<kWord + (kGroups > 1 ? 2 : kWords / 2)>(args, self, state);
    }
    load_inputs<kWord + kInputsAhead>(state);
    if constexpr ((kWord + 1) % kGroupWords == 0) begin_group(state);
    decode<kWord + 1>(state);
    constexpr int kSlot = kWord % (kInputsAhead + 1);
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      const uint32_t(&a)[4] = state.fragments[kWord % 2][i];
      Decoder::multiply_narrow(state.products[i], a, state.x[kSlot][0], state.x[kSlot][1]);
      Decoder::multiply_narrow(state.products[i] + 4, a, state.x[kSlot][2], state.x[kSlot][3]);
    }
    if constexpr ((kWord + 1) % kGroupWords == 0) end_group(state, sums);
  }

  /// Sums over num_chunks >= 1 stages, from *stage on.
  static __device__ __forceinline__ void run(const MixedArguments& args, const MixedRing& ring,
                                             const MixedThread& self, int num_chunks,
                                             ptx::PipelineState* stage, Sums& sums) {
    State state;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) sums[i][j] = state.products[i][j] = 0;
    }
    // Matrices of eight tokens and eight inputs, whose rows lanes name.
    const int token = self.lane % 8 + self.lane / 16 * 8, piece = self.lane / 8 % 2;
    const auto row = static_cast<uint32_t>(token * 128 + ((piece ^ (token % 8)) << 4));
    ptx::PipelineState next = *stage;
    ptx::mbarrier_wait_parity(ring.full(args, next.index), next.parity);
    state.w_stage = state.next_w_stage = ring.w_stage(args, next.index);
    state.tokens = state.next_tokens = ring.x_stage(args, next.index) + row;
    Base::load_codes(args, self, state.w_stage, 0, state.first);
    if constexpr (Base::kIsU8) Base::load_codes(args, self, state.w_stage, 1, state.second);
    load_groups<0>(args, self, state);
    load_inputs<0>(state);
    load_inputs<1>(state);
    load_inputs<2>(state);
    begin_group(state);
#pragma unroll
    for (int i = 0; i < kStrips; ++i) state.scales[i] = state.next_scales[i];
    decode<0>(state);
#pragma unroll 1
    for (int c = 0; c < num_chunks; ++c) {
      const int current = next.index;
      state.tokens = state.next_tokens;
      state.w_stage = state.next_w_stage;
      run_word<0>(args, self, state, sums);
      run_word<1>(args, self, state, sums);
      run_word<2>(args, self, state, sums);
      run_word<3>(args, self, state, sums);
      next.advance(args.num_stages);
      // Behind the last stage what is there is read, for nothing.
      if (c + 1 < num_chunks) ptx::mbarrier_wait_parity(ring.full(args, next.index), next.parity);
      state.next_w_stage = ring.w_stage(args, next.index);
      state.next_tokens = ring.x_stage(args, next.index) + row;
      run_word<4>(args, self, state, sums);
      run_word<5>(args, self, state, sums);
      run_word<6>(args, self, state, sums);
      run_word<7>(args, self, state, sums);
      Base::release(args, ring, self, current);
    }
    *stage = next;
  }
};

}  // namespace halley::cuda
