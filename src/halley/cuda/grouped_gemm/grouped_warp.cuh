// A warp's part of a tile of the grouped GEMM: dequantization, mma.sync, the epilogue.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/grouped_gemm/grouped_arguments.h"
#include "halley/cuda/grouped_gemm/grouped_decode.cuh"
#include "halley/cuda/grouped_gemm/grouped_finish.cuh"
#include "halley/cuda/grouped_gemm/grouped_loader.cuh"
#include "halley/cuda/grouped_gemm/grouped_tiles.h"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::cuda {

/// A warp's part of a tile.
template <GroupedKind kKind, class Shape>
class GroupedWarp {
 public:
  using Decoder = GroupedDecoder<kKind>;
  using Sum = typename Decoder::Sum;
  static constexpr int kBlocks = Shape::kWarpBlocks;
  static constexpr int kTokenTiles = Shape::kTokenTiles;
  using Sums = Sum[kBlocks][kTokenTiles][4];

  __device__ explicit GroupedWarp(const GroupedArguments& args) : args_(args) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    lane_ = thread % 32;
    first_block_ = warp % Shape::kOutputWarps * kBlocks;
    input_part_ = warp / Shape::kOutputWarps;
    // A stage holds the entries of its row blocks alone.
    steps_ = {.shift = args.group_shift,
              .pitch_bytes = static_cast<uint32_t>(Shape::kRowBlocks * block_group_bytes(kKind))};
  }

  /// All tokens, or the first half of them where no others have slots.
  __device__ __forceinline__ void multiply(uint32_t stage, int num_slots, Sums& sums) const {
    if (num_slots > Shape::kTokens / 2) {
      multiply_tiles<kTokenTiles>(stage, sums);
    } else {
      multiply_tiles<kTokenTiles / 2>(stage, sums);
    }
  }

  /// Sums of the warps that have other inputs of a stage are added to those of the first ones, by
  /// way of shared memory. Called by all threads.
  __device__ __forceinline__ void add_parts(Sum* shared, Sums& sums) const {
    static_assert(Shape::kInputWarps <= 2);
    if constexpr (Shape::kInputWarps == 2) {
      const int warp = static_cast<int>(threadIdx.x) / 32;
      Sum* own = shared + warp % Shape::kOutputWarps * (kBlocks * kTokenTiles * 4 * 32) + lane_;
      if (input_part_ == 1) for_each(sums, own, [](Sum& sum, Sum& part) { part = sum; });
      __syncthreads();
      if (input_part_ == 0) for_each(sums, own, [](Sum& sum, Sum& part) { sum += part; });
    }
  }
  static constexpr int kPartsBytes =
      Shape::kInputWarps == 1 ? 0 : Shape::kRowBlocks * kBlockOutputs * Shape::kTokens * 4;

  /// Called by all lanes of a warp, whose sums are those of all inputs.
  __device__ __forceinline__ void store(const GroupedTile& tile, const Sums& sums) const {
    if (input_part_ != 0) return;
    const bool is_gated = args_.epilogue == GroupedEpilogue::kGated;
    const GroupedWeight* weights = args_.weights + (is_gated ? 2 : 1) * tile.expert;
    const GroupedWeight first = weights[0];
    const GroupedWeight second = is_gated ? weights[1] : first;
#pragma unroll
    for (int pair = 0; pair < kBlocks / 2; ++pair) {
      const int output = tile.first_output + (first_block_ / 2 + pair) * kBlockOutputs;
      const int other = output + half_begin<Shape>(is_gated, 1);
      const Outputs lower(args_, first, output + lane_ / 4);
      const Outputs upper(args_, second, other + lane_ / 4);
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        const int token = 8 * j;
        if (token >= tile.num_slots) continue;
        const Tokens tokens(args_, tile, token + lane_ % 4 * 2);
        float values[4], others[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          values[e] = finished(lower, tokens, e, sums[2 * pair][j][e]);
          others[e] = finished(upper, tokens, e, sums[2 * pair + 1][j][e]);
        }
        if (args_.epilogue != GroupedEpilogue::kNone) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            values[e] = activate(args_.activation, values[e]);
            others[e] = is_gated ? values[e] * others[e] : activate(args_.activation, others[e]);
          }
        }
        if (is_gated) {
          store_block(tile, token, output, others);
        } else {
          store_block(tile, token, output, values);
          store_block(tile, token, other, others);
        }
      }
    }
  }

 private:
  /// A unit is the inputs of 64 bytes of a token. Of packed tiles one load of 16 bytes has those of
  /// one or two units.
  static constexpr int kUnits = token_bytes(kKind) / 64;
  static constexpr int kLoads = is_rows(kKind) ? kUnits : block_bytes(kKind) / 512;
  static constexpr int kUnitsOfLoad = kUnits / kLoads;
  static constexpr int kOwnLoads = kLoads / Shape::kInputWarps;

  __device__ __forceinline__ uint4 load_codes(uint32_t weights, int i, int load) const {
    return ptx::ld_shared_b32x4(weights +
                                static_cast<uint32_t>((first_block_ + i) * block_bytes(kKind) +
                                                      load * 512 + lane_ * kPieceBytes));
  }
  /// The address of the parameters of the lane's outputs of a block, in the first group.
  __device__ __forceinline__ uint32_t group_entry_of(uint32_t weights, int i) const {
    return weights + static_cast<uint32_t>(Shape::kRowBlocks * block_bytes(kKind) +
                                           (first_block_ + i) * block_group_bytes(kKind) +
                                           lane_ / 4 * group_entry_bytes(mixed_kind(kKind)));
  }
  /// A unit of the eight tokens of token tile `j`.
  __device__ __forceinline__ void load_tokens(uint32_t stage, int j, int unit,
                                              uint32_t (&b)[4]) const {
    const int token = 8 * j + lane_ % 8;
    ptx::ldmatrix_x4(b, stage + static_cast<uint32_t>(swizzled_offset(token_bytes(kKind), token,
                                                                      unit * 4 + lane_ / 8)));
  }

  template <int kTiles>
  __device__ __forceinline__ void multiply_tiles(uint32_t stage, Sums& sums) const {
    if constexpr (has_scales(kKind)) {
      multiply_decoded<kTiles>(stage, sums);
    } else {
      multiply_groups<kTiles>(stage, sums);
    }
  }

  template <int kTiles>
  __device__ __forceinline__ void multiply_decoded(uint32_t stage, Sums& sums) const {
    const uint32_t weights = stage + static_cast<uint32_t>(weights_offset<Shape>(kKind));
#pragma unroll
    for (int l = 0; l < kOwnLoads; ++l) {
      const int load = input_part_ * kOwnLoads + l;
      uint4 codes[kBlocks];
      if constexpr (!is_rows(kKind)) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) codes[i] = load_codes(weights, i, load);
      }
#pragma unroll
      for (int u = 0; u < kUnitsOfLoad; ++u) {
        // The parity of a unit is known to the compiler.
        const int unit = load * kUnitsOfLoad + u;
        uint32_t a[kBlocks][8];
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          if constexpr (is_rows(kKind)) {
            load_rows(weights, first_block_ + i, unit, a[i]);
          } else {
            Decoder::decode(a[i], u, codes[i],
                            Decoder::load_groups(group_entry_of(weights, i), unit, steps_));
          }
        }
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          uint32_t b[4];
          load_tokens(stage, j, unit, b);
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) Decoder::multiply(sums[i][j], a[i], b);
        }
      }
    }
  }

  /// Values less their zeros are multiplied, exactly, and the sums of a group scaled.
  template <int kTiles>
  __device__ __forceinline__ void multiply_groups(uint32_t stage, Sums& sums) const {
    const uint32_t weights = stage + static_cast<uint32_t>(weights_offset<Shape>(kKind));
    const int group_end = (1 << steps_.shift) - 1;
    float group_sums[kBlocks][kTiles][4] = {};
    PlainZeros zeros[kBlocks];
#pragma unroll
    for (int l = 0; l < kOwnLoads; ++l) {
      const int load = input_part_ * kOwnLoads + l;
      uint4 codes[kBlocks];
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) codes[i] = load_codes(weights, i, load);
#pragma unroll
      for (int u = 0; u < kUnitsOfLoad; ++u) {
        const int unit = load * kUnitsOfLoad + u;
        const bool is_first = l == 0 && u == 0;
        const bool is_last = l == kOwnLoads - 1 && u == kUnitsOfLoad - 1;
        if (is_first || (unit & group_end) == 0) {
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) {
            zeros[i] = Decoder::zeros_of(load_group(weights, i, unit));
          }
        }
        uint32_t a[kBlocks][2][4];
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          if constexpr (is_u8(mixed_kind(kKind))) {
            Decoder::decode_less_zero(a[i][0], codes[i].x, codes[i].y, zeros[i]);
            Decoder::decode_less_zero(a[i][1], codes[i].z, codes[i].w, zeros[i]);
          } else {
            Decoder::decode_less_zero(a[i][0], u == 0 ? codes[i].x : codes[i].z, zeros[i]);
            Decoder::decode_less_zero(a[i][1], u == 0 ? codes[i].y : codes[i].w, zeros[i]);
          }
        }
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          uint32_t b[4];
          load_tokens(stage, j, unit, b);
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) {
            Decoder::multiply_narrow(group_sums[i][j], a[i][0], b[0], b[1]);
            Decoder::multiply_narrow(group_sums[i][j], a[i][1], b[2], b[3]);
          }
        }
        if (is_last || (unit & group_end) == group_end) {
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) {
            const float2 scales = Decoder::scales_of(load_group(weights, i, unit));
#pragma unroll
            for (int j = 0; j < kTiles; ++j) add_scaled(scales, group_sums[i][j], sums[i][j]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ auto load_group(uint32_t weights, int i, int unit) const {
    return Decoder::load_group(group_entry_of(weights, i) + steps_.offset_of(unit));
  }

  /// The group's sums begin anew.
  __device__ __forceinline__ static void add_scaled(const float2& scales, float (&group_sums)[4],
                                                    float (&sums)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sums[e] = fmaf(e < 2 ? scales.x : scales.y, group_sums[e], sums[e]);
      group_sums[e] = 0;
    }
  }

  /// Scales, offsets and bias of a lane's two outputs of a block, n and n + 8.
  struct Outputs {
    float scale[2] = {1, 1}, offset[2] = {0, 0}, bias[2] = {0, 0};

    __device__ Outputs(const GroupedArguments& args, const GroupedWeight& weight, int output) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int n = output + 8 * h;
        if (n >= args.num_outputs) continue;
        if (has_scales(kKind)) {
          scale[h] = weight.scales[n];
          if (weight.offsets != nullptr) offset[h] = weight.offsets[n];
        }
        if (weight.bias != nullptr) bias[h] = weight.bias[n];
      }
    }
  };

  /// The same of two tokens.
  struct Tokens {
    float scale[2] = {1, 1};
    float sum[2] = {0, 0};

    __device__ Tokens(const GroupedArguments& args, const GroupedTile& tile, int token) {
      if constexpr (has_scales(kKind)) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (token + e >= tile.num_slots) continue;
          const int slot = tile.first_slot + token + e;
          const int row = args.slot_row != nullptr ? args.slot_row[slot] : slot;
          scale[e] = args.x_scales.x_scales[args.x_scales.is_x_tensor ? 0 : row];
          if (args.x_scales.x_sums != nullptr) {
            sum[e] = static_cast<float>(args.x_scales.x_sums[row]);
          }
        }
      }
    }
  };

  __device__ static float finished(const Outputs& outputs, const Tokens& tokens, int e, Sum sum) {
    const int h = e / 2, t = e % 2;
    return finished_sum<kKind>(sum, outputs.scale[h], outputs.offset[h], outputs.bias[h],
                               tokens.scale[t], tokens.sum[t]);
  }

  /// Sixteen outputs of eight tokens.
  __device__ __forceinline__ void store_block(const GroupedTile& tile, int token, int output,
                                              const float (&values)[4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Two tokens of an output become two outputs of a token.
      const uint32_t pair = ptx::movmatrix_trans(packed(values[2 * h], values[2 * h + 1]));
      const int row = token + lane_ / 4, n = output + 8 * h + lane_ % 4 * 2;
      if (row >= tile.num_slots) continue;
      auto* to =
          reinterpret_cast<uint16_t*>(args_.y + (tile.first_slot + row) * args_.y_stride_bytes) + n;
      if (args_.is_in_pairs) {
        if (n < args_.num_outputs) *reinterpret_cast<uint32_t*>(to) = pair;
        continue;
      }
      if (n < args_.num_outputs) to[0] = static_cast<uint16_t>(pair & 0xFFFFu);
      if (n + 1 < args_.num_outputs) to[1] = static_cast<uint16_t>(pair >> 16);
    }
  }

  __device__ uint32_t packed(float low, float high) const {
    return args_.is_y_bf16 ? word_of(__floats2bfloat162_rn(low, high))
                           : word_of(__floats2half2_rn(low, high));
  }

  /// Both operands of 64 inputs of a block of rows.
  __device__ __forceinline__ void load_rows(uint32_t weights, int block, int unit,
                                            uint32_t (&a)[8]) const {
    const int row = block * kBlockOutputs + lane_ % 16;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint32_t four[4];
      ptx::ldmatrix_x4(four, weights + static_cast<uint32_t>(swizzled_offset(
                                           kChunkInputs, row, unit * 4 + 2 * s + lane_ / 16)));
#pragma unroll
      for (int i = 0; i < 4; ++i) a[4 * s + i] = four[i];
    }
  }

  template <typename Body>
  __device__ void for_each(Sums& sums, Sum* own, const Body& body) const {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) body(sums[i][j][e], own[((i * kTokenTiles + j) * 4 + e) * 32]);
      }
    }
  }

  const GroupedArguments& args_;
  int lane_ = 0;
  int first_block_ = 0;  // of the tile
  int input_part_ = 0;
  GroupSteps steps_ = {};
};

}  // namespace halley::cuda
