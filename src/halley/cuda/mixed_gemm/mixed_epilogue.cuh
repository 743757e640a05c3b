// From the sums of a tile to rows of Y: scales, bias, rounding.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/mixed_gemm/mixed_exchange.cuh"

namespace halley::cuda {

template <class Decoder, int kTokens, int kStrips>
struct MixedEpilogue {
  using Sum = typename Decoder::Sum;
  using Sums = typename MixedConsumer<Decoder, kTokens, kStrips>::Sums;
  static constexpr int kVectors = kTokens / 8 * kStrips;

  /// Of the thread's outputs.
  struct OutputScales {
    float scale[kStrips][2];
    float offset[kStrips][2];
    float bias[kStrips][2];
  };

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

  /// From registers: f32, and rows of y that the copy engine cannot write.
  static __device__ __forceinline__ void write_numbers(
      const MixedArguments& args, const MixedRing& ring, const MixedThread& self,
      const MixedPlace& place, const OutputScales& scales, const Sums& sums) {
    const uint32_t token_scales = token_scale_address(args, ring, self, 2 * self.column_pair());
    sync_warpgroup(1 + self.warpgroup);  // token scales are there
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!place.part.has(v)) continue;
      float values[4];
      values_of(token_scales + v / kStrips * 64, scales, &sums[v % kStrips][v / kStrips * 4],
                v % kStrips, values);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int token = 8 * (v / kStrips) + 2 * self.column_pair() + e % 2;
        const int n = output_of(self, place, v % kStrips, e / 2);
        if (token < place.tokens_left && n < args.N) {
          store_number(args.y, args.y_dtype, (place.token + token) * args.y_stride + n, values[e]);
        }
      }
    }
    sync_warpgroup(1 + self.warpgroup);  // token scales have been read
  }

  /// f16 and bf16: turned to rows of 128 bytes in shared memory, which the copy engine writes while
  /// the next tile is computed. What lies outside of y it leaves out.
  static __device__ __forceinline__ void write_boxes(const MixedArguments& args,
                                                     const MixedRing& ring, const MixedThread& self,
                                                     const MixedPlace& place,
                                                     const OutputScales& scales, const Sums& sums) {
    const MixedPart& part = place.part;
    const uint32_t staging =
        ring.base +
        static_cast<uint32_t>(args.shared.staging +
                              self.warpgroup * args.shared.staged_vectors * kStagedVectorBytes);
    const bool is_bf16 = args.y_dtype == DType::kBf16;
    // Lanes 0 to 15 name tokens of both halves of the warp's 16 outputs; 16 bytes are swizzled.
    const int token = self.lane % 8, piece = self.warp * 2 + self.lane / 8 % 2;
    const uint32_t row = staging + static_cast<uint32_t>(token * 128 + ((piece ^ token) << 4));
    const uint32_t token_scales = token_scale_address(args, ring, self, 2 * self.column_pair());
    if (self.in_warpgroup == 0) wait_for_store_reads();  // of the tile before
    sync_warpgroup(1 + self.warpgroup);                  // and token scales are there
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!part.has(v)) continue;
      float values[4];
      values_of(token_scales + v / kStrips * 64, scales, &sums[v % kStrips][v / kStrips * 4],
                v % kStrips, values);
      uint32_t pairs[2];
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const uint32_t f16 = round_to_f16(values[2 * u], values[2 * u + 1]);
        const uint32_t bf16 = round_to_bf16(values[2 * u], values[2 * u + 1]);
        pairs[u] = is_bf16 ? bf16 : f16;
      }
      store_matrices_transposed(row + static_cast<uint32_t>((v - part.begin) * kStagedVectorBytes),
                                pairs[0], pairs[1]);
    }
    publish_to_copies();
    sync_warpgroup(1 + self.warpgroup);
    if (self.in_warpgroup != 0) return;
    for (int v = part.begin; v < part.end; ++v) {
      start_box_store(place.y_map, place.output + v % kStrips * 64, place.token + v / kStrips * 8,
                      staging + static_cast<uint32_t>((v - part.begin) * kStagedVectorBytes));
    }
    close_stores();
  }
};

}  // namespace halley::cuda
