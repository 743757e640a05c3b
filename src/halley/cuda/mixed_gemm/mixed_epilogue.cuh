// From the sums of a tile to rows of Y: scales, bias, rounding.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/mixed_gemm/mixed_exchange.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::cuda {

template <class Decoder, int kTokens, int kStrips>
struct MixedEpilogue {
  using Sum = typename Decoder::Sum;
  using Sums = typename MixedConsumer<Decoder, kTokens, kStrips>::Sums;
  using Exchange = MixedExchange<Decoder, kTokens, kStrips>;
  static constexpr int kVectors = kTokens / 8 * kStrips;
  static constexpr int kOutputs = kStrips * 64;  // of a warpgroup

  /// Of the thread's outputs.
  struct OutputScales {
    float scale[kStrips][2];
    float offset[kStrips][2];
    float bias[kStrips][2];
  };

  /// Of those of one strip.
  struct StripScales {
    float scale[2];
    float offset[2];
    float bias[2];
  };

  static __device__ __forceinline__ int output_of(const MixedThread& self, const MixedPlace& place,
                                                  int strip, int upper) {
    return place.output + strip * 64 + self.warp * 16 + self.row() + upper * 8;
  }

  static __device__ __forceinline__ uint32_t token_scale_address(const MixedArguments& args,
                                                                 const MixedRing& ring,
                                                                 const MixedThread& self,
                                                                 int token) {
    return ring.base +
           static_cast<uint32_t>(args.shared.token_scales + (self.warpgroup * kTokens + token) * 8);
  }
  static __device__ __forceinline__ uint32_t output_scale_address(const MixedArguments& args,
                                                                  const MixedRing& ring,
                                                                  const MixedThread& self,
                                                                  int output) {
    return ring.base + static_cast<uint32_t>(args.shared.output_scales +
                                             (self.warpgroup * 3 * kOutputs + output) * 4);
  }

  /// Starts copies of what the tile's tokens and outputs are scaled with into the warpgroup's own
  /// memory: nobody waits for them before the products are done.
  static __device__ __forceinline__ void stage_scales(const MixedArguments& args,
                                                      const MixedRing& ring,
                                                      const MixedThread& self,
                                                      const MixedPlace& place) {
    const RowScales& scales = args.scales;
    const int i = self.in_warpgroup;
    if (i < kOutputs) {
      const int n = place.output + i;
      const uint32_t to = output_scale_address(args, ring, self, i);
      copy_number(args, to + 8 * kOutputs, args.bias, n, n < args.N);
      if constexpr (is_s8(Decoder::kKind)) {
        copy_number(args, to, scales.w_scales, n, n < args.N);
        copy_number(args, to + 4 * kOutputs, scales.w_offsets, n, n < args.N);
      }
    }
    if constexpr (is_s8(Decoder::kKind)) {
      if (i < kTokens) {
        const int m = place.token + i;
        const bool is_in = i < place.tokens_left;
        const uint32_t to = token_scale_address(args, ring, self, i);
        copy_number(args, to, scales.x_scales, scales.is_x_tensor ? 0 : m, is_in);
        copy_number(args, to + 4,
                    needs_input_sums(Decoder::kKind, scales) ? scales.x_sums : nullptr, m, is_in);
      }
    }
    ptx::cp_async_commit_group();
  }

  /// Zero where there is none.
  template <class T>
  static __device__ __forceinline__ void copy_number(const MixedArguments& args, uint32_t to,
                                                     const T* from, int index, bool is_there) {
    static_assert(sizeof(T) == 4);
    if (is_there && from != nullptr) {
      ptx::cp_async_ca<4>(to, from + index, 4);
    } else {
      ptx::cp_async_ca<4>(to, args.weights, 0);
    }
  }

  /// Behind a barrier of the warpgroup.
  static __device__ __forceinline__ OutputScales load_scales(const MixedArguments& args,
                                                             const MixedRing& ring,
                                                             const MixedThread& self) {
    OutputScales out;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const uint32_t from =
            output_scale_address(args, ring, self, i * 64 + self.warp * 16 + self.row() + u * 8);
        out.bias[i][u] = __uint_as_float(ptx::ld_shared_b32(from + 8 * kOutputs));
        if constexpr (is_s8(Decoder::kKind)) {
          // U4S8Decoder's numbers are 16 times too large.
          const float unit = Decoder::kKind == MixedKind::kU4S8 ? 0.0625f : 1.0f;
          out.scale[i][u] = unit * __uint_as_float(ptx::ld_shared_b32(from));
          out.offset[i][u] = __uint_as_float(ptx::ld_shared_b32(from + 4 * kOutputs));
        }
      }
    }
    return out;
  }

  /// Of strip i, which need not be known to the compiler.
  static __device__ __forceinline__ StripScales strip_scales(const OutputScales& all, int i) {
    StripScales one;
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      one.scale[u] = i == 0 ? all.scale[0][u] : all.scale[kStrips - 1][u];
      one.offset[u] = i == 0 ? all.offset[0][u] : all.offset[kStrips - 1][u];
      one.bias[u] = i == 0 ? all.bias[0][u] : all.bias[kStrips - 1][u];
    }
    return one;
  }

  /// Scale and sum of codes (s32) of a thread's two tokens.
  static __device__ __forceinline__ uint4 load_token_scales(uint32_t address) {
    if constexpr (is_s8(Decoder::kKind)) return ptx::ld_shared_b32x4(address);
    return {};
  }

  /// The values of a strip and of two tokens: first of output row(), then of that 8 further.
  static __device__ __forceinline__ void values_of(const uint4& tokens, const StripScales& scales,
                                                   const Sum* sums, float (&values)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int u = e / 2;
      const auto input_sum = static_cast<int>(e % 2 == 0 ? tokens.y : tokens.w);
      auto value = static_cast<float>(exact_sum<Decoder>(sums[e], input_sum));
      if constexpr (is_s8(Decoder::kKind)) {
        value *= scales.scale[u];
        if constexpr (Decoder::kKind == MixedKind::kU4S8) {
          value = fmaf(-scales.offset[u], static_cast<float>(input_sum), value);
        }
        value *= __uint_as_float(e % 2 == 0 ? tokens.x : tokens.z);
      }
      values[e] = value + scales.bias[u];
    }
  }

  /// The thread's four numbers of vector v.
  static __device__ __forceinline__ void write_four(const MixedArguments& args,
                                                    const MixedThread& self,
                                                    const MixedPlace& place, int v,
                                                    const float (&values)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = 8 * (v / kStrips) + 2 * self.column_pair() + e % 2;
      const int n = output_of(self, place, v % kStrips, e / 2);
      if (token < place.tokens_left && n < args.N) {
        store_number(args.y, args.y_dtype, (place.token + token) * args.y_stride + n, values[e]);
      }
    }
  }

  /// Of this tile.
  static __device__ __forceinline__ OutputScales wait_for_scales(const MixedArguments& args,
                                                                 const MixedRing& ring,
                                                                 const MixedThread& self) {
    ptx::cp_async_wait_group<0>();
    ptx::bar_sync<128>(1 + self.warpgroup);
    return load_scales(args, ring, self);
  }

  /// From registers: f32, and rows of y that the copy engine cannot write.
  static __device__ __forceinline__ void write_numbers(const MixedArguments& args,
                                                       const MixedRing& ring,
                                                       const MixedThread& self,
                                                       const MixedPlace& place, const Sums& sums) {
    const uint32_t token_scales = token_scale_address(args, ring, self, 2 * self.column_pair());
    const OutputScales scales = wait_for_scales(args, ring, self);
    uint4 tokens = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v % kStrips == 0) tokens = load_token_scales(token_scales + v / kStrips * 64);
      float values[4];
      values_of(tokens, strip_scales(scales, v % kStrips), &sums[v % kStrips][v / kStrips * 4],
                values);
      write_four(args, self, place, v, values);
    }
    ptx::bar_sync<128>(1 + self.warpgroup);  // scales have been read
  }

  /// The same of the block's part of a tile that a cluster shares.
  static __device__ __forceinline__ void write_shared_numbers(const MixedArguments& args,
                                                              const MixedRing& ring,
                                                              const MixedThread& self,
                                                              const MixedPlace& place) {
    const uint32_t token_scales = token_scale_address(args, ring, self, 2 * self.column_pair());
    const OutputScales scales = wait_for_scales(args, ring, self);
#pragma unroll 1
    for (int unit = place.part.begin; unit < place.part.end; ++unit) {
      if (Exchange::kUnits == 2 && unit % 2 != self.warpgroup) continue;
      const int v = unit / Exchange::kUnits;
      Sum sums[4];
      Exchange::total_of(args, ring, self, unit - place.part.begin, sums);
      float values[4];
      const uint4 tokens = load_token_scales(token_scales + v / kStrips * 64);
      values_of(tokens, strip_scales(scales, v % kStrips), sums, values);
      write_four(args, self, place, v, values);
    }
    ptx::bar_sync<128>(1 + self.warpgroup);
  }

  static __device__ __forceinline__ uint32_t staging(const MixedArguments& args,
                                                     const MixedRing& ring,
                                                     const MixedThread& self) {
    return ring.base +
           static_cast<uint32_t>(args.shared.staging +
                                 self.warpgroup * args.shared.staged_vectors * kStagedVectorBytes);
  }

  /// Where a lane's row of a vector is staged. Lanes 0 to 15 name tokens of both halves of the
  /// warp's 16 outputs; 16 bytes are swizzled.
  static __device__ __forceinline__ uint32_t staged_row(const MixedThread& self, uint32_t staging) {
    const int token = self.lane % 8, piece = self.warp * 2 + self.lane / 8 % 2;
    return staging + static_cast<uint32_t>(token * 128 + ((piece ^ token) << 4));
  }

  static __device__ __forceinline__ void stage(const MixedArguments& args, uint32_t row,
                                               const float (&values)[4]) {
    if (args.y_dtype == DType::kBf16) {
      ptx::stmatrix_x2_trans(row, ptx::cvt_rn_bf16x2_f32(values[0], values[1]),
                             ptx::cvt_rn_bf16x2_f32(values[2], values[3]));
    } else {
      ptx::stmatrix_x2_trans(row, ptx::cvt_rn_f16x2_f32(values[0], values[1]),
                             ptx::cvt_rn_f16x2_f32(values[2], values[3]));
    }
  }

  /// The staging memory may be written, and scales are there.
  static __device__ __forceinline__ OutputScales begin_boxes(const MixedArguments& args,
                                                             const MixedRing& ring,
                                                             const MixedThread& self) {
    if (self.in_warpgroup == 0) ptx::cp_async_bulk_wait_group_read<0>();  // of the tile before
    return wait_for_scales(args, ring, self);
  }

  /// Which of the staged vectors is v: those of a box lie one behind the other, tokens in order.
  static __device__ __forceinline__ int staged_index(const MixedArguments& args,
                                                     const MixedPlace& place, int v) {
    if (args.y_box_vectors == 1) return v - place.part.begin;
    return v % kStrips * args.y_box_vectors + (v - place.part.begin) / kStrips;
  }

  static __device__ __forceinline__ void end_boxes(const MixedArguments& args,
                                                   const MixedThread& self, const MixedPlace& place,
                                                   uint32_t staging) {
    ptx::fence_proxy_async_shared();
    ptx::bar_sync<128>(1 + self.warpgroup);
    if (self.in_warpgroup != 0) return;
    // Boxes of one vector, or one of all tokens for each strip.
    const int begin = place.part.begin;
    const int end = args.y_box_vectors == 1 ? place.part.end : begin + kStrips;
    for (int v = begin; v < end; ++v) {
      ptx::cp_async_bulk_tensor_2d_store(
          place.y_map, place.output + v % kStrips * 64, place.token + v / kStrips * 8,
          staging + static_cast<uint32_t>(staged_index(args, place, v) * kStagedVectorBytes));
    }
    ptx::cp_async_bulk_commit_group();
  }

  /// f16 and bf16: turned to rows of 128 bytes in shared memory, which the copy engine writes while
  /// the next tile is computed. What lies outside of y it leaves out.
  static __device__ __forceinline__ void write_boxes(const MixedArguments& args,
                                                     const MixedRing& ring, const MixedThread& self,
                                                     const MixedPlace& place, const Sums& sums) {
    const uint32_t staged = staging(args, ring, self), row = staged_row(self, staged);
    const uint32_t token_scales = token_scale_address(args, ring, self, 2 * self.column_pair());
    const OutputScales scales = begin_boxes(args, ring, self);
    uint4 tokens = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v % kStrips == 0) tokens = load_token_scales(token_scales + v / kStrips * 64);
      float values[4];
      values_of(tokens, strip_scales(scales, v % kStrips), &sums[v % kStrips][v / kStrips * 4],
                values);
      // Boxes have all tokens.
      const int index = v % kStrips * (kVectors / kStrips) + v / kStrips;
      stage(args, row + static_cast<uint32_t>(index * kStagedVectorBytes), values);
    }
    end_boxes(args, self, place, staged);
  }

  /// The same of the block's part of a tile that a cluster shares.
  static __device__ __forceinline__ void write_shared_boxes(const MixedArguments& args,
                                                            const MixedRing& ring,
                                                            const MixedThread& self,
                                                            const MixedPlace& place) {
    const uint32_t staged = staging(args, ring, self), row = staged_row(self, staged);
    const uint32_t token_scales = token_scale_address(args, ring, self, 2 * self.column_pair());
    const OutputScales scales = begin_boxes(args, ring, self);
#pragma unroll 2
    for (int v = place.part.begin; v < place.part.end; ++v) {
      Sum sums[4];
      Exchange::total_of(args, ring, self, v - place.part.begin, sums);
      float values[4];
      const uint4 tokens = load_token_scales(token_scales + v / kStrips * 64);
      values_of(tokens, strip_scales(scales, v % kStrips), sums, values);
      const int index = staged_index(args, place, v);
      stage(args, row + static_cast<uint32_t>(index * kStagedVectorBytes), values);
    }
    end_boxes(args, self, place, staged);
  }
};

}  // namespace halley::cuda
