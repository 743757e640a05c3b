// From the sums of a tile to rows of Y: parts of several blocks added, scales, bias, rounding.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"

namespace halley::cuda {

/// Where a tile lies in Y.
struct MixedPlace {
  int tile = 0;
  int token = 0;        // the tile's first
  int output = 0;       // the warpgroup's first
  int tokens_left = 0;  // tokens of Y from the tile's first on
};

/// Four sums of one strip and eight tokens, as they lie in the workspace.
template <class Sum>
using SumVector = std::conditional_t<std::is_same_v<Sum, float>, float4, int4>;

template <class Decoder, int kTokens, int kStrips>
struct MixedEpilogue {
  using Consumer = MixedConsumer<Decoder, kTokens, kStrips>;
  using Sum = typename Decoder::Sum;
  using Sums = typename Consumer::Sums;
  using Vector = SumVector<Sum>;
  static constexpr int kColumns = kTokens / 8;  // groups of eight tokens
  static constexpr int kVectors = kColumns * kStrips;
  /// Parts that are read at a time: as many as 64 registers hold.
  static constexpr int kParts = kVectors >= 16 ? 1 : 16 / kVectors;
  static constexpr int kOutputs = kStrips * 64;  // of the warpgroup

  /// Of the thread's outputs.
  struct OutputScales {
    float scale[kStrips][2];
    float offset[kStrips][2];
    float bias[kStrips][2];
  };

  static __device__ __forceinline__ Vector* slot_of(const MixedArguments& args,
                                                    const MixedThread& self, int slot) {
    return static_cast<Vector*>(args.partials) +
           static_cast<int64_t>(slot) * (kVectors * kConsumerThreads) + self.thread;
  }

  /// Adds what other blocks have of this tile. False: they have not all come, and the last one of
  /// them writes Y. Integers are exact; in f32 the order is that of the blocks.
  static __device__ __forceinline__ bool add_parts(const MixedArguments& args,
                                                   const MixedRing& ring, const MixedThread& self,
                                                   const MixedPlace& place, Sums& sums) {
    const MixedSharers sharers = sharers_of(args.schedule, place.tile);
    if (sharers.count == 1) return true;
    Vector* mine =
        slot_of(args, self, partial_slot(args.schedule, place.tile, static_cast<int>(blockIdx.x)));
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int j = v / kStrips, i = v % kStrips;
      if (8 * j < place.tokens_left) {
        __stcg(mine + v * kConsumerThreads,
               Vector{sums[i][4 * j], sums[i][4 * j + 1], sums[i][4 * j + 2], sums[i][4 * j + 3]});
      }
    }
    // The barriers order the warpgroup's stores and loads before and behind one thread's.
    sync_warpgroup(1 + self.warpgroup);
    const uint32_t flag = ring.base + static_cast<uint32_t>(args.shared.flags + self.warpgroup * 4);
    if (self.in_warpgroup == 0) {
      uint32_t* counter =
          args.counters + 2 * (place.tile - args.schedule.whole_tiles) + self.warpgroup;
      const bool is_last = count_in_order(counter) + 1 == static_cast<uint32_t>(sharers.count);
      if (is_last) *counter = 0;  // for the next launch
      store_shared_4(flag, is_last ? 1 : 0);
    }
    sync_warpgroup(1 + self.warpgroup);
    if (load_shared_4(flag) == 0) return false;
    sum_parts(args, self, place, sharers, sums);
    return true;
  }

  static __device__ __forceinline__ void sum_parts(const MixedArguments& args,
                                                   const MixedThread& self, const MixedPlace& place,
                                                   const MixedSharers& sharers, Sums& sums) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[v % kStrips][v / kStrips * 4 + e] = 0;
    }
#pragma unroll 1
    for (int part = 0; part < sharers.count; part += kParts) {
      Vector parts[kParts][kVectors];
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const int block = sharers.first + min(part + p, sharers.count - 1);
        const Vector* from = slot_of(args, self, partial_slot(args.schedule, place.tile, block));
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          const bool is_there = part + p < sharers.count && 8 * (v / kStrips) < place.tokens_left;
          parts[p][v] = is_there ? __ldcg(from + v * kConsumerThreads) : Vector{0, 0, 0, 0};
        }
      }
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          Sum* to = &sums[v % kStrips][v / kStrips * 4];
          to[0] += parts[p][v].x;
          to[1] += parts[p][v].y;
          to[2] += parts[p][v].z;
          to[3] += parts[p][v].w;
        }
      }
    }
  }

  static __device__ __forceinline__ int output_of(const MixedThread& self, const MixedPlace& place,
                                                  int strip, int upper) {
    return place.output + strip * 64 + self.warp * 16 + self.row() + upper * 8;
  }

  static __device__ __forceinline__ OutputScales load_scales(const MixedArguments& args,
                                                             const MixedThread& self,
                                                             const MixedPlace& place) {
    OutputScales out;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const int n = output_of(self, place, i, u);
        const bool is_in = n < args.N;
        const RowScales& scales = args.scales;
        out.bias[i][u] = is_in && args.bias != nullptr ? args.bias[n] : 0.0f;
        if constexpr (is_s8(Decoder::kKind)) {
          // U4S8Decoder's numbers are 16 times too large.
          const float unit = Decoder::kKind == MixedKind::kU4S8 ? 0.0625f : 1.0f;
          out.scale[i][u] = is_in ? unit * scales.w_scales[n] : 0.0f;
          out.offset[i][u] = is_in && scales.w_offsets != nullptr ? scales.w_offsets[n] : 0.0f;
        }
      }
    }
    return out;
  }

  static __device__ __forceinline__ uint32_t token_scale_address(const MixedArguments& args,
                                                                 const MixedRing& ring,
                                                                 const MixedThread& self,
                                                                 int token) {
    return ring.base +
           static_cast<uint32_t>(args.shared.token_scales + (self.warpgroup * kTokens + token) * 8);
  }

  /// Scales of the tile's tokens, and sums of their codes, into the warpgroup's own memory. They
  /// are read behind the next barrier of the warpgroup.
  static __device__ __forceinline__ void stage_token_scales(const MixedArguments& args,
                                                            const MixedRing& ring,
                                                            const MixedThread& self,
                                                            const MixedPlace& place) {
    if constexpr (is_s8(Decoder::kKind)) {
      const int token = self.in_warpgroup;
      if (token >= kTokens) return;
      float scale = 0, sum = 0;
      if (token < place.tokens_left) {
        const int m = place.token + token;
        scale = args.scales.x_scales[args.scales.is_x_tensor ? 0 : m];
        if (args.scales.w_offsets != nullptr) sum = static_cast<float>(args.scales.x_sums[m]);
      }
      store_shared_8(token_scale_address(args, ring, self, token), __float_as_uint(scale),
                     __float_as_uint(sum));
    }
  }

  /// The values of strip i and of two tokens, whose scales are at this address: first of output
  /// row(), then of that 8 further.
  static __device__ __forceinline__ void values_of(uint32_t token_scales,
                                                   const OutputScales& scales, const Sum* sums,
                                                   int i, float (&values)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int u = e / 2;
      float value = static_cast<float>(sums[e]);
      if constexpr (is_s8(Decoder::kKind)) {
        const uint2 token = load_shared_8(token_scales + e % 2 * 8);
        value *= scales.scale[i][u];
        value = fmaf(-scales.offset[i][u], __uint_as_float(token.y), value);
        value *= __uint_as_float(token.x);
      }
      values[e] = value + scales.bias[i][u];
    }
  }

  /// f32: eight lanes write 32 consecutive bytes of a row.
  static __device__ __forceinline__ void write_f32(const MixedArguments& args,
                                                   const MixedRing& ring, const MixedThread& self,
                                                   const MixedPlace& place,
                                                   const OutputScales& scales, const Sums& sums) {
    sync_warpgroup(1 + self.warpgroup);  // token scales are there
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
        float values[4];
        values_of(token_scale_address(args, ring, self, 8 * j + 2 * self.column_pair()), scales,
                  &sums[i][4 * j], i, values);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int token = 8 * j + 2 * self.column_pair() + e % 2;
          const int n = output_of(self, place, i, e / 2);
          if (token < place.tokens_left && n < args.N) {
            static_cast<float*>(args.y)[(place.token + token) * args.y_stride + n] = values[e];
          }
        }
      }
    }
    sync_warpgroup(1 + self.warpgroup);  // token scales have been read
  }

  /// f16 and bf16: turned to rows in shared memory, then 16 bytes at a time.
  static __device__ __forceinline__ void write_16_bits(
      const MixedArguments& args, const MixedRing& ring, const MixedThread& self,
      const MixedPlace& place, const OutputScales& scales, const Sums& sums) {
    constexpr int kStaged = kTokens < 64 ? kTokens : 64;
    constexpr int kPitch = kOutputs * 2 + 16;  // MixedShared::staging_pitch
    const uint32_t staging =
        ring.base + static_cast<uint32_t>(args.shared.staging + self.warpgroup * kStaged * kPitch);
    const bool is_bf16 = args.y_dtype == DType::kBf16;
#pragma unroll
    for (int begin = 0; begin < kTokens; begin += kStaged) {
      if (begin >= place.tokens_left) break;
      sync_warpgroup(1 + self.warpgroup);  // token scales are there, rows before have been read
#pragma unroll
      for (int jj = 0; jj < kStaged / 8; jj += 2) {
#pragma unroll
        for (int i = 0; i < kStrips; ++i) {
          uint32_t pairs[4];
#pragma unroll
          for (int u = 0; u < 2; ++u) {
            const int j = begin / 8 + jj + u;
            float values[4];
            values_of(token_scale_address(args, ring, self, 8 * j + 2 * self.column_pair()), scales,
                      &sums[i][4 * j], i, values);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              const uint32_t f16 = round_to_f16(values[2 * h], values[2 * h + 1]);
              const uint32_t bf16 = round_to_bf16(values[2 * h], values[2 * h + 1]);
              pairs[2 * u + h] = is_bf16 ? bf16 : f16;
            }
          }
          // Lane l names token l % 8 of the matrix l / 8: matrices are both halves of 16 outputs,
          // of eight tokens, then of the next eight.
          const int token = (jj + self.lane / 16) * 8 + self.lane % 8;
          const int output = i * 64 + self.warp * 16 + self.lane / 8 % 2 * 8;
          store_matrices_transposed(staging + static_cast<uint32_t>(token * kPitch + output * 2),
                                    pairs);
        }
      }
      sync_warpgroup(1 + self.warpgroup);
      const int num_tokens = min(kStaged, place.tokens_left - begin);
      write_rows(args, self, place, staging, begin, num_tokens);
    }
    sync_warpgroup(1 + self.warpgroup);  // before the next tile's token scales
  }

  static __device__ __forceinline__ void write_rows(const MixedArguments& args,
                                                    const MixedThread& self,
                                                    const MixedPlace& place, uint32_t staging,
                                                    int begin, int num_tokens) {
    constexpr int kPitch = kOutputs * 2 + 16;
    constexpr int kRowVectors = kOutputs / 8;
    for (int index = self.in_warpgroup; index < num_tokens * kRowVectors; index += 128) {
      const int token = index / kRowVectors, column = index % kRowVectors * 8;
      const uint4 values =
          load_shared_16(staging + static_cast<uint32_t>(token * kPitch + column * 2));
      const int n = place.output + column;
      uint16_t* to =
          static_cast<uint16_t*>(args.y) + (place.token + begin + token) * args.y_stride + n;
      if (args.has_wide_rows && n + 8 <= args.N) {
        *reinterpret_cast<uint4*>(to) = values;
      } else {
        const uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (n + i < args.N) to[i] = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
        }
      }
    }
  }
};

}  // namespace halley::cuda
