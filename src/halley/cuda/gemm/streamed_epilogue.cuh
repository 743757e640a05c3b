// From sums in registers to rows of y, through shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemm/streamed_arguments.h"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/cluster.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::cuda {

/// By the threads of all warpgroups. Sums are those of wgmma: element 4 j + e of a strip is output
/// lane / 4 + 8 * (e / 2) of the warp's 16, token 8 j + lane % 4 * 2 + e % 2.
template <typename Sum, int kTokens, StreamedTile kTile>
class StreamedEpilogue {
 public:
  static constexpr int kThreads = kTile.warpgroups * 128;
  using Sums = Sum[kTile.strips][kTokens / 2];

  __device__ __forceinline__ StreamedEpilogue(const StreamedArguments& args, uint32_t base,
                                              int rank)
      : args_(args),
        rank_(rank),
        staging_(base + static_cast<uint32_t>(args.shared.staging)),
        token_scales_(base + static_cast<uint32_t>(args.shared.token_scales)),
        output_scales_(base + static_cast<uint32_t>(args.shared.output_scales)) {}

  /// Scales, offsets and bias of a tile's outputs, in arrays of one after the other.
  __device__ __forceinline__ void stage_output_scales(int tile) const {
    const RowScales& scales = args_.scales;
    const int outputs = args_.tile_outputs;
    if (scales.w_scales == nullptr && scales.w_offsets == nullptr && args_.bias == nullptr) return;
    ptx::bar_sync<kThreads>(1);  // those of the tile before are read
    for (int row = static_cast<int>(threadIdx.x); row < outputs; row += kThreads) {
      const int n = output_of(tile, row);
      const bool is_there = n >= 0;
      const auto value = [&](const float* array, int index, float otherwise) {
        return array == nullptr || !is_there ? otherwise : __ldg(array + index);
      };
      const float scale = value(scales.w_scales, scales.is_w_tensor ? 0 : n, 1.0f);
      const float offset = value(scales.w_offsets, n, 0.0f);
      const float bias = value(args_.bias, n, 0.0f);
      store_float(output_scales_ + static_cast<uint32_t>(row * 4), scale);
      store_float(output_scales_ + static_cast<uint32_t>((outputs + row) * 4), offset);
      store_float(output_scales_ + static_cast<uint32_t>((2 * outputs + row) * 4), bias);
    }
  }

  /// Behind earlier kernels.
  __device__ __forceinline__ void stage_token_scales() const {
    const RowScales& scales = args_.scales;
    const int m = static_cast<int>(threadIdx.x);
    if (m >= args_.M) return;
    const float scale =
        scales.x_scales == nullptr ? 1.0f : scales.x_scales[scales.is_x_tensor ? 0 : m];
    const float sum = scales.x_sums == nullptr ? 0.0f : static_cast<float>(scales.x_sums[m]);
    ptx::st_shared_b32x2(token_scales_ + static_cast<uint32_t>(m * 8),
                         {__float_as_uint(scale), __float_as_uint(sum)});
  }

  __device__ __forceinline__ void write(int tile, const Sums& sums) const {
    if (args_.plan.split > 1) {
      ptx::barrier_cluster_wait_aligned();  // all of its blocks have begun
      send_sums(sums);
      ptx::barrier_cluster_arrive_aligned();
      ptx::barrier_cluster_wait_aligned();
      const int first = rank_ * args_.shared.staged_tokens;
      write_tokens(tile, first, min(first + args_.shared.staged_tokens, args_.M));
      return;
    }
#pragma unroll 1
    for (int first = 0; first < args_.M; first += args_.shared.staged_tokens) {
      // What lay here is read: stages of the ring, or the tokens before.
      ptx::bar_sync<kThreads>(1);
      stage_sums(first, sums);
      ptx::bar_sync<kThreads>(1);
      write_tokens(tile, first, min(first + args_.shared.staged_tokens, args_.M));
    }
  }

 private:
  static __device__ __forceinline__ void store_float(uint32_t address, float value) {
    ptx::st_shared_b32(address, __float_as_uint(value));
  }
  static __device__ __forceinline__ float4 load_floats(uint32_t address) {
    const uint4 words = ptx::ld_shared_b32x4(address);
    return {__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
            __uint_as_float(words.w)};
  }
  static __device__ __forceinline__ uint32_t bits_of_sum(float sum) { return __float_as_uint(sum); }
  static __device__ __forceinline__ uint32_t bits_of_sum(int sum) {
    return static_cast<uint32_t>(sum);
  }
  static __device__ __forceinline__ Sum sum_of_bits(uint32_t bits) {
    if constexpr (std::is_same_v<Sum, int>) return static_cast<int>(bits);
    if constexpr (std::is_same_v<Sum, float>) return __uint_as_float(bits);
  }

  /// The output of a row of the tile's boxes, or -1.
  __device__ __forceinline__ int output_of(int tile, int row) const {
    const int box = row / args_.plan.box_rows;
    const int in_box = row - box * args_.plan.box_rows;
    const int n = tile * args_.tile_places + box * args_.second_box + in_box;
    const int end = args_.is_gated ? (box + 1) * args_.places : args_.places;
    return n < end ? n : -1;
  }

  __device__ __forceinline__ uint32_t staged(int token, int row) const {
    return staging_ + static_cast<uint32_t>((token * args_.shared.staging_pitch + row) * 4);
  }

  /// body(token, row of the tile's boxes, two tokens' sums) for all pairs of sums of the thread.
  template <typename Body>
  __device__ __forceinline__ void for_pairs(const Sums& sums, const Body& body) const {
    constexpr bool kHasOwnBox = kTile.boxes > kTile.strips;
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int first_row = (kHasOwnBox ? thread % 128 : thread) / 32 * 16 + lane / 4;
    const int own_box = kHasOwnBox ? thread / 128 : 0;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
      for (int i = 0; i < kTile.strips; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = first_row + 8 * half;
          if (row >= args_.plan.box_rows) continue;
          body(8 * j + lane % 4 * 2, (own_box + i) * args_.plan.box_rows + row,
               bits_of_sum(sums[i][4 * j + 2 * half]), bits_of_sum(sums[i][4 * j + 2 * half + 1]));
        }
      }
    }
  }

  __device__ __forceinline__ void stage_sums(int first, const Sums& sums) const {
    const int count = args_.shared.staged_tokens;
    for_pairs(sums, [&](int token, int row, uint32_t even, uint32_t odd) {
      const int place = token - first;
      if (place < 0 || place >= count) return;
      ptx::st_shared_b32(staged(place, row), even);
      ptx::st_shared_b32(staged(place + 1, row), odd);
    });
  }

  /// To the block of the cluster that writes the tokens, into this one's part of its memory.
  __device__ __forceinline__ void send_sums(const Sums& sums) const {
    const int count = args_.shared.staged_tokens;
    for_pairs(sums, [&](int token, int row, uint32_t even, uint32_t odd) {
      if (token >= args_.M) return;
      const int rank = token / count;
      const uint32_t to = staged(rank_ * count + token - rank * count, row);
      ptx::st_shared_cluster_b32(ptx::mapa(to, rank), even);
      ptx::st_shared_cluster_b32(
          ptx::mapa(to + static_cast<uint32_t>(args_.shared.staging_pitch * 4), rank), odd);
    });
  }

  /// Four outputs' sums, those of a cluster's blocks added in their order.
  __device__ __forceinline__ void load_sums(int token, int row, float (&values)[4]) const {
    Sum sums[4] = {};
    for (int rank = 0; rank < args_.plan.split; ++rank) {
      const uint4 words =
          ptx::ld_shared_b32x4(staged(rank * args_.shared.staged_tokens + token, row));
      const uint32_t bits[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] += sum_of_bits(bits[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = static_cast<float>(sums[i]);
  }

  /// RowScales's formula for four outputs of a token.
  __device__ __forceinline__ void scale(int token, int row, float (&values)[4]) const {
    const RowScales& scales = args_.scales;
    const bool has_any =
        scales.w_scales != nullptr || scales.w_offsets != nullptr || args_.bias != nullptr;
    if (!has_any && scales.x_scales == nullptr) return;
    const uint2 of_token = ptx::ld_shared_b32x2(token_scales_ + static_cast<uint32_t>(token * 8));
    const float x_scale = __uint_as_float(of_token.x), x_sum = __uint_as_float(of_token.y);
    if (!has_any) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] *= x_scale;
      return;
    }
    const int outputs = args_.tile_outputs;
    const uint32_t address = output_scales_ + static_cast<uint32_t>(row * 4);
    const float4 w_scales = load_floats(address);
    const float4 offsets = load_floats(address + static_cast<uint32_t>(outputs * 4));
    const float4 bias = load_floats(address + static_cast<uint32_t>(outputs * 8));
    const float w_scale[4] = {w_scales.x, w_scales.y, w_scales.z, w_scales.w};
    const float offset[4] = {offsets.x, offsets.y, offsets.z, offsets.w};
    const float added[4] = {bias.x, bias.y, bias.z, bias.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float value = values[i] * w_scale[i];
      if (scales.w_offsets != nullptr) value = fmaf(-offset[i], x_sum, value);
      values[i] = value * x_scale;
      if (args_.bias != nullptr) values[i] += added[i];
    }
  }

  template <typename T>
  static __device__ __forceinline__ T rounded(float value) {
    if constexpr (std::is_same_v<T, __half>) return __float2half_rn(value);
    if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(value);
    if constexpr (std::is_same_v<T, float>) return value;
  }

  __device__ __forceinline__ void write_tokens(int tile, int first, int end) const {
    if (args_.y_dtype == DType::kF16) {
      write_tokens_as<__half>(tile, first, end);
    } else if (args_.y_dtype == DType::kBf16) {
      write_tokens_as<__nv_bfloat16>(tile, first, end);
    } else {
      write_tokens_as<float>(tile, first, end);
    }
  }

  template <typename T>
  __device__ __forceinline__ void write_tokens_as(int tile, int first, int end) const {
    const int rows = args_.is_gated ? args_.plan.box_rows : args_.tile_outputs;
    const int quads = rows / 4;
    const int first_place = tile * args_.tile_places;
    const int count = (end - first) * quads;
    auto* const y = static_cast<T*>(args_.y);
    const bool is_wide = args_.y_stride % 4 == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      const int m = first + i / quads, row = i % quads * 4;
      const int n = first_place + row;
      if (n >= args_.places) continue;
      float values[4];
      load_sums(m - first, row, values);
      scale(m, row, values);
      if constexpr (kTile.boxes == 2) {
        if (args_.is_gated) {
          float factors[4];
          load_sums(m - first, args_.plan.box_rows + row, factors);
          scale(m, args_.plan.box_rows + row, factors);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float gate = activate(args_.activation, to_float(rounded<T>(values[e])));
            values[e] = __fmul_rn(gate, to_float(rounded<T>(factors[e])));
          }
        }
      }
      T* const to = y + m * args_.y_stride + n;
      if (is_wide && n + 4 <= args_.places) {
        struct alignas(4 * sizeof(T)) Quad {
          T values[4];
        };
        *reinterpret_cast<Quad*>(to) = {{rounded<T>(values[0]), rounded<T>(values[1]),
                                         rounded<T>(values[2]), rounded<T>(values[3])}};
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (n + e < args_.places) to[e] = rounded<T>(values[e]);
        }
      }
    }
  }

  const StreamedArguments& args_;
  int rank_;
  uint32_t staging_, token_scales_, output_scales_;
};

}  // namespace halley::cuda
