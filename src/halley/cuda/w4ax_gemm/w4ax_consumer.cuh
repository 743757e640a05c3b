// The products of one segment: a warpgroup decodes its 64 outputs, multiplies a block of 128 inputs
// to s32 sums, and adds them, scaled, in f32.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_epilogue.cuh"
#include "halley/cuda/mixed_gemm/wgmma_s8.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_producer.cuh"

namespace halley::cuda {

/// Sums of a block begin with the bits of this number instead of zero: as f32 they are then this
/// number plus the sum, exactly, where sums have fewer than 22 bits. No conversion is needed, which
/// costs more than a multiplication. Codes are 16 times too large: |sum| <= 128 * 128 * 128 = 2^21.
inline constexpr float kSumBase = 0x1.8p23f;
inline constexpr int32_t kSumBaseBits = 0x4B400000;

/// A thread's codes of a stage as operand A: [step of 32 inputs][register].
inline constexpr int kW4axSteps = kW4axInputs / 32;
using W4axFragments = uint32_t[kW4axSteps][4];

/// A code becomes the high half of a byte: without sign extension, 16 times the number.
struct W4axHighHalves {
  static constexpr float kUnit = 0.0625f;  // of a number in the fragments

  /// Two words of codes, a step's.
  static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t u, uint32_t v) {
    asm volatile(
        "{.reg .b32 t;\n"
        "shl.b32 t, %4, 4; and.b32 %0, t, 0xF0F0F0F0; and.b32 %1, %4, 0xF0F0F0F0;\n"
        "shl.b32 t, %5, 4; and.b32 %2, t, 0xF0F0F0F0; and.b32 %3, %5, 0xF0F0F0F0;}"
        : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
        : "r"(u), "r"(v));
  }
};

/// Codes in the order of w4ax_layout.h.
template <class Conversion>
struct W4axCodes {
  static constexpr float kUnit = Conversion::kUnit;

  /// A thread's, as they lie in memory.
  struct Loaded {
    uint4 first;
    uint4 second;
  };

  /// Of a stage, whose codes begin at `codes`.
  static __device__ __forceinline__ void load(uint32_t codes, const TileThread& self,
                                              Loaded& loaded) {
    const uint32_t mine =
        codes + static_cast<uint32_t>(self.warpgroup * kW4axStripBytes + self.in_warpgroup * 16);
    loaded.first = load_shared_16(mine);
    loaded.second = load_shared_16(mine + kW4axHalfBytes);
  }

  static __device__ __forceinline__ void decode(const Loaded& loaded, W4axFragments& fragments) {
    Conversion::decode(fragments[0], loaded.first.x, loaded.first.y);
    Conversion::decode(fragments[1], loaded.first.z, loaded.first.w);
    Conversion::decode(fragments[2], loaded.second.x, loaded.second.y);
    Conversion::decode(fragments[3], loaded.second.z, loaded.second.w);
  }
};

/// Barriers for a warpgroup's turn to multiply; lower ones are those of warpgroups alone.
inline constexpr int kTurnBarrier = 3;

/// Once in a launch, before the first block: the turn is the first warpgroup's.
__device__ __forceinline__ void begin_turns(int warpgroup) {
  if (warpgroup == 1) asm volatile("bar.arrive %0, 256;" ::"r"(kTurnBarrier) : "memory");
}
__device__ __forceinline__ void wait_for_turn(int warpgroup) {
  asm volatile("bar.sync %0, 256;" ::"r"(kTurnBarrier + warpgroup) : "memory");
}
__device__ __forceinline__ void pass_turn(int warpgroup) {
  asm volatile("bar.arrive %0, 256;" ::"r"(kTurnBarrier + 1 - warpgroup) : "memory");
}

/// Codes: as W4axCodes.
template <int kTokens, class Codes = W4axCodes<W4axHighHalves>>
struct W4axConsumer {
  using Sums = TileSums<kTokens>;
  using BlockSums = int32_t[kTokens / 2];
  using Fragments = W4axFragments;
  /// One warpgroup scales its sums while the tensor cores multiply for the other. Left alone, both
  /// would do the same at the same time. Fewer tokens lose more by waiting than they gain.
  static constexpr bool kTakesTurns = kTokens >= 128;
  /// Groups of eight tokens whose scales are read at a time.
  static constexpr int kColumns = kTokens / 8;
  static constexpr int kBatch = kColumns < 4 ? kColumns : 4;

  /// Rows of 128 bytes, eight of them 1024 bytes from the next, swizzled by 128 bytes (PTX ISA,
  /// "Matrix Descriptor Format").
  static constexpr uint64_t kDescriptor =
      uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16;

  /// Of the thread's two outputs: the scale, and what takes kSumBase off the scaled sum. Exact: the
  /// base has two bits, the scale is one of f16.
  struct OutputScales {
    float scale[2];
    float base[2];
  };

  /// All codes of a stage.
  static __device__ __forceinline__ void load_fragments(uint32_t stage, const TileThread& self,
                                                        Fragments& fragments) {
    typename Codes::Loaded loaded;
    Codes::load(stage + static_cast<uint32_t>(w4ax_codes_offset(kTokens)), self, loaded);
    Codes::decode(loaded, fragments);
  }

  static __device__ __forceinline__ OutputScales load_output_scales(uint32_t stage,
                                                                    const TileThread& self) {
    const int output = self.warpgroup * 64 + self.warp * 16 + self.row();
    const uint32_t at = stage + static_cast<uint32_t>(w4ax_scales_offset(kTokens) + output * 4);
    OutputScales scales;
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      scales.scale[u] =
          __uint_as_float(load_shared_4(at + static_cast<uint32_t>(u * 32))) * Codes::kUnit;
      scales.base[u] = -kSumBase * scales.scale[u];
    }
    return scales;
  }

  /// Where those of the thread's tokens of the first column begin.
  static __device__ __forceinline__ uint32_t token_scales_of(uint32_t stage,
                                                             const TileThread& self) {
    return stage + static_cast<uint32_t>(w4ax_scales_offset(kTokens) + kW4axScaleBytes +
                                         self.column_pair() * 8);
  }

  static __device__ __forceinline__ void load_token_scales(uint32_t at, int column,
                                                           uint2 (&scales)[kBatch]) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      scales[j] = load_shared_8(at + static_cast<uint32_t>((column + j) * 32));
    }
  }

  /// sums += block sums * scales; the block's sums begin anew.
  static __device__ __forceinline__ void add_scaled(const OutputScales& outputs,
                                                    const uint2 (&tokens)[kBatch], int column,
                                                    BlockSums& of_block, Sums& sums) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = (column + j) * 4 + e, u = e / 2;
        const float scaled = fmaf(__int_as_float(of_block[i]), outputs.scale[u], outputs.base[u]);
        sums[i] = fmaf(scaled, __uint_as_float(e % 2 == 0 ? tokens[j].x : tokens[j].y), sums[i]);
        of_block[i] = kSumBaseBits;
      }
    }
  }

  static __device__ __forceinline__ void start_products(const Fragments& fragments, uint32_t stage,
                                                        BlockSums& of_block) {
    const uint64_t descriptor = kDescriptor | (stage & 0x3FFFFu) >> 4;
    fence_products();
#pragma unroll
    for (int step = 0; step < kW4axSteps; ++step) {
      // The last one is a group of its own.
      if (step + 1 == kW4axSteps) close_products();
      S8Product<kTokens>::run(of_block, fragments[step], descriptor + 2 * step, 1);
    }
    close_products();
  }

  static __device__ __forceinline__ void begin(const TileThread& self) {
    if constexpr (kTakesTurns) begin_turns(self.warpgroup);
  }

  /// What goes on from block to block.
  struct State {
    TileStage stage;
    int num_left = 0;  // blocks, this one included
    Fragments fragments[2];
    BlockSums of_block;
  };

  /// One block, whose codes are in fragments[kParity]; those of the next are read meanwhile.
  template <int kParity>
  static __device__ __forceinline__ void run_block(const TileArguments& args, const TileRing& ring,
                                                   const TileThread& self, State& state,
                                                   Sums& sums) {
    const int index = state.stage.index;
    const uint32_t stage = ring.stage(args, index);
    if constexpr (kTakesTurns) wait_for_turn(self.warpgroup);
    start_products(state.fragments[kParity], stage, state.of_block);
    const OutputScales outputs = load_output_scales(stage, self);
    const uint32_t token_scales = token_scales_of(stage, self);
    uint2 tokens[2][kBatch];
    load_token_scales(token_scales, 0, tokens[0]);
    state.stage.advance(args.num_stages);
    if (state.num_left > 1) {
      wait_barrier(ring.full(args, state.stage.index), state.stage.parity);
    }
    // Behind the last stage this reads what is there, for nothing: a branch around loads would make
    // ptxas wait for the products.
    load_fragments(ring.stage(args, state.stage.index), self, state.fragments[1 - kParity]);
    if constexpr (kTakesTurns) {
      // The other warpgroup's products follow the last of these without a gap.
      wait_for_products<1>();
      pass_turn(self.warpgroup);
    }
    wait_for_products<0>();
#pragma unroll
    for (int column = 0; column < kColumns; column += kBatch) {
      const int batch = column / kBatch;
      if (column + kBatch < kColumns) {
        load_token_scales(token_scales, column + kBatch, tokens[(batch + 1) % 2]);
      }
      add_scaled(outputs, tokens[batch % 2], column, state.of_block, sums);
    }
    release_part(args, ring, self.lane, index);
    --state.num_left;
  }

  /// Sums over num_blocks >= 1 blocks, from *stage_place on.
  static __device__ __forceinline__ void run(const TileArguments& args, const TileRing& ring,
                                             const TileThread& self, int num_blocks,
                                             TileStage* stage_place, Sums& sums) {
    State state;
    state.stage = *stage_place;
    state.num_left = num_blocks;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      sums[i] = 0;
      state.of_block[i] = kSumBaseBits;
    }
    wait_barrier(ring.full(args, state.stage.index), state.stage.parity);
    load_fragments(ring.stage(args, state.stage.index), self, state.fragments[0]);
    run_block<0>(args, ring, self, state, sums);
    while (state.num_left > 0) {
      run_block<1>(args, ring, self, state, sums);
      if (state.num_left == 0) break;
      run_block<0>(args, ring, self, state, sums);
    }
    *stage_place = state.stage;
  }
};

}  // namespace halley::cuda
