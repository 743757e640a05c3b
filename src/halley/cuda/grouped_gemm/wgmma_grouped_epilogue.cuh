// From the accumulators of a tile to rows of y: scales, bias, activation and gate, rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "halley/cuda/grouped_gemm/grouped_finish.cuh"
#include "halley/cuda/grouped_gemm/grouped_tiles.h"
#include "halley/cuda/grouped_gemm/wgmma_grouped_arguments.h"
#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"
#include "halley/cuda/mixed_gemm/mixed_ring.cuh"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::cuda {

/// Belongs to one warpgroup, whose 128 threads share memory of their own and a barrier.
template <GroupedKind kKind, int kTokens>
class WgmmaGroupedEpilogue {
 public:
  using Sum = std::conditional_t<has_integer_sums(kKind), int32_t, float>;
  using Sums = Sum[2][kTokens / 2];

  __device__ __forceinline__ WgmmaGroupedEpilogue(const WgmmaGroupedArguments& args,
                                                  const MixedRing& ring, const MixedThread& self)
      : args_(args),
        self_(self),
        is_gated_(args.epilogue == GroupedEpilogue::kGated),
        outputs_(ring.base + static_cast<uint32_t>(args.ring.shared.output_scales +
                                                   self.warpgroup * 3 * kRows * 4)),
        tokens_(ring.base + static_cast<uint32_t>(args.ring.shared.token_scales +
                                                  self.warpgroup * kTokens * 8)),
        staging_(ring.base +
                 static_cast<uint32_t>(args.ring.shared.staging +
                                       self.warpgroup * args.ring.shared.staged_vectors *
                                           kStagedVectorBytes)) {}

  /// Starts copies of what the tile's tokens and outputs are scaled with: nobody waits for them
  /// before the GEMM's mainloop is done.
  __device__ __forceinline__ void start_scales(const GroupedTile& tile) const {
    const int i = self_.in_warpgroup, sub = i / kSubTileRows;
    const int n = first_output(tile, sub) + i % kSubTileRows;
    const bool is_output = n < args_.num_outputs;
    const GroupedWeight& weight = args_.weights[is_gated_ ? 2 * tile.expert + sub : tile.expert];
    const uint32_t to = outputs_ + static_cast<uint32_t>(i * 4);
    copy_number(to + 2 * kRows * 4, weight.bias, n, is_output);
    if constexpr (has_scales(kKind)) {
      copy_number(to, weight.scales, n, is_output);
      copy_number(to + kRows * 4, weight.offsets, n, is_output);
      if (i < kTokens) {
        const bool is_slot = i < tile.num_slots;
        int row = tile.first_slot + i;
        if (is_slot && args_.slot_row != nullptr) row = args_.slot_row[row];
        const uint32_t token = tokens_ + static_cast<uint32_t>(i * 8);
        copy_number(token, args_.x_scales.x_scales, args_.x_scales.is_x_tensor ? 0 : row, is_slot);
        copy_number(token + 4, args_.x_scales.x_sums, row, is_slot);
      }
    }
    ptx::cp_async_commit_group();
  }

  /// Waits for the scales, and for the other warps of the warpgroup twice.
  __device__ __forceinline__ void store(const GroupedTile& tile, const Sums& sums) const {
    ptx::cp_async_wait_group<0>();
    sync();
    // Loops of their own: with a choice for every element they do not fit the instruction cache.
    if (is_gated_) {
      with_activation(args_.activation, [&](auto activation) {
        stage_tile(sums, [&](const float(&gate)[4], const float(&other)[4], uint32_t to) {
          float values[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) values[e] = activate(activation, gate[e]) * other[e];
          stage(to, values);
        });
      });
    } else if (args_.epilogue == GroupedEpilogue::kActivation) {
      stage_tile(sums, [&](const float(&lower)[4], const float(&upper)[4], uint32_t to) {
        float values[2][4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          values[0][e] = activate(args_.activation, lower[e]);
          values[1][e] = activate(args_.activation, upper[e]);
        }
        stage(to, values[0]);
        stage(to + kSubTileBytes, values[1]);
      });
    } else {
      stage_tile(sums, [&](const float(&lower)[4], const float(&upper)[4], uint32_t to) {
        stage(to, lower);
        stage(to + kSubTileBytes, upper);
      });
    }
    sync();
    write_rows(tile, 0);
    if (!is_gated_) write_rows(tile, 1);
    sync();
  }

 private:
  static constexpr int kRows = 2 * kSubTileRows;  // of weights, of a warpgroup
  static constexpr int kSubTileBytes = kTokens / 8 * kStagedVectorBytes;  // staged

  /// A thread has two outputs of a sub-tile, eight from each other.
  struct Outputs {
    float scale[2] = {1, 1}, offset[2] = {0, 0}, bias[2] = {0, 0};
  };

  /// Calls body(values of both sub-tiles, where the first is staged) for eight tokens at a time.
  template <typename Body>
  __device__ __forceinline__ void stage_tile(const Sums& sums, const Body& body) const {
    Outputs outputs[2];
    load_outputs(outputs);
    const uint32_t staged = staged_row();
    uint4 tokens = {};
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      if constexpr (has_scales(kKind)) {
        tokens = ptx::ld_shared_b32x4(tokens_ +
                                      static_cast<uint32_t>((8 * j + 2 * self_.column_pair()) * 8));
      }
      float values[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          values[i][e] = finished(outputs[i], tokens, e, sums[i][4 * j + e]);
        }
      }
      body(values[0], values[1], staged + static_cast<uint32_t>(j * kStagedVectorBytes));
    }
  }

  /// The warpgroup's sub-tile begins at it.
  __device__ __forceinline__ int first_output(const GroupedTile& tile, int sub) const {
    return is_gated_ ? tile.first_output / 2 + self_.warpgroup * kSubTileRows
                     : tile.first_output + (2 * self_.warpgroup + sub) * kSubTileRows;
  }

  __device__ __forceinline__ void sync() const { ptx::bar_sync<128>(1 + self_.warpgroup); }

  /// Zero where there is none.
  template <class T>
  __device__ __forceinline__ void copy_number(uint32_t to, const T* from, int index,
                                              bool is_there) const {
    static_assert(sizeof(T) == 4);
    if (is_there && from != nullptr) {
      ptx::cp_async_ca<4>(to, from + index, 4);
    } else {
      ptx::cp_async_ca<4>(to, args_.weights, 0);
    }
  }

  __device__ __forceinline__ void load_outputs(Outputs (&outputs)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const uint32_t from =
            outputs_ +
            static_cast<uint32_t>((i * kSubTileRows + self_.warp * 16 + self_.row() + u * 8) * 4);
        outputs[i].bias[u] = __uint_as_float(ptx::ld_shared_b32(from + 2 * kRows * 4));
        if constexpr (has_scales(kKind)) {
          outputs[i].scale[u] = __uint_as_float(ptx::ld_shared_b32(from));
          outputs[i].offset[u] = __uint_as_float(ptx::ld_shared_b32(from + kRows * 4));
        }
      }
    }
  }

  __device__ __forceinline__ static float finished(const Outputs& outputs, const uint4& tokens,
                                                   int e, Sum sum) {
    const int u = e / 2;
    const auto row_sum = static_cast<int32_t>(e % 2 == 0 ? tokens.y : tokens.w);
    // Values of kU4GroupS8 are multiplied as 128 more than they are.
    if constexpr (kKind == GroupedKind::kU4GroupS8) {
      sum =
          static_cast<int32_t>(static_cast<uint32_t>(sum) - 128u * static_cast<uint32_t>(row_sum));
    }
    const float x_scale = __uint_as_float(e % 2 == 0 ? tokens.x : tokens.z);
    return finished_sum<kKind>(sum, outputs.scale[u], outputs.offset[u], outputs.bias[u], x_scale,
                               static_cast<float>(row_sum));
  }

  /// A lane's row of eight tokens is staged there, 64 outputs each. Lanes 0 to 15 name tokens of
  /// both halves of the warp's 16 outputs; 16 bytes are swizzled.
  __device__ __forceinline__ uint32_t staged_row() const {
    const int token = self_.lane % 8, piece = self_.warp * 2 + self_.lane / 8 % 2;
    return staging_ + static_cast<uint32_t>(token * 128 + ((piece ^ token) << 4));
  }

  __device__ __forceinline__ void stage(uint32_t row, const float (&values)[4]) const {
    if (args_.is_y_bf16) {
      ptx::stmatrix_x2_trans(row, ptx::cvt_rn_bf16x2_f32(values[0], values[1]),
                             ptx::cvt_rn_bf16x2_f32(values[2], values[3]));
    } else {
      ptx::stmatrix_x2_trans(row, ptx::cvt_rn_f16x2_f32(values[0], values[1]),
                             ptx::cvt_rn_f16x2_f32(values[2], values[3]));
    }
  }

  /// The staged rows of a sub-tile: eight threads write 128 bytes of a token.
  __device__ __forceinline__ void write_rows(const GroupedTile& tile, int sub) const {
    const int piece = self_.in_warpgroup % 8;
    const int n = first_output(tile, sub) + 8 * piece, left = args_.num_outputs - n;
    if (left <= 0) return;
#pragma unroll 4
    for (int token = self_.in_warpgroup / 8; token < tile.num_slots; token += 16) {
      const uint4 values = ptx::ld_shared_b32x4(
          staging_ + static_cast<uint32_t>(sub * kSubTileBytes + token / 8 * kStagedVectorBytes +
                                           token % 8 * 128 + ((piece ^ (token % 8)) << 4)));
      auto* to = reinterpret_cast<uint16_t*>(args_.y + (tile.first_slot + int64_t{token}) *
                                                           args_.y_stride_bytes) +
                 n;
      if (args_.is_in_eights) {
        *reinterpret_cast<uint4*>(to) = values;
        continue;
      }
      const uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (c < left) to[c] = static_cast<uint16_t>(words[c / 2] >> (c % 2 * 16));
      }
    }
  }

  const WgmmaGroupedArguments& args_;
  const MixedThread& self_;
  bool is_gated_;
  uint32_t outputs_, tokens_, staging_;
};

}  // namespace halley::cuda
