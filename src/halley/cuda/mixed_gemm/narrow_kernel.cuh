// The product of a 4-bit weight and at most eight tokens: no pipeline, every warp reads weights
// into registers and multiplies them by mma.sync.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/mixed_gemm/hopper_launch.cuh"
#include "halley/cuda/mixed_gemm/mixed_arguments.h"
#include "halley/cuda/mixed_gemm/mixed_decode.cuh"

namespace halley::cuda {

inline constexpr int kNarrowWarps = 8;
inline constexpr int kNarrowTokens = 8;
/// Outputs of a block: two tiles of 16. Its warps take turns along K.
inline constexpr int kNarrowOutputs = 32;
/// Halves of a chunk (64 inputs) that a warp has in registers, beside those in flight.
inline constexpr int kNarrowDepth = 2;
/// Words from a token's sums to the next's: stores and loads of a warp meet no bank twice.
inline constexpr int kNarrowPitch = 36;

/// A thread's part of 64 inputs: 16 bytes of codes of each tile, parameters of both steps' groups,
/// and inputs as they lie in memory.
template <class Decoder>
struct NarrowItem {
  static constexpr int kVectors = is_s8(Decoder::kKind) ? 1 : 2;
  uint4 codes[2];
  typename Decoder::Group groups[2][2];
  uint4 x[kVectors];
};

/// Lane c of four has v[0..3]; afterwards v[i] is what lane i had in v[c].
__device__ __forceinline__ void transpose_in_quad(uint4& vector) {
  const int lane = static_cast<int>(threadIdx.x % 4);
  const bool is_odd = lane % 2 == 1, is_upper = lane >= 2;
  uint32_t v[4] = {vector.x, vector.y, vector.z, vector.w};
  const uint32_t first = __shfl_xor_sync(~0u, is_odd ? v[0] : v[1], 1);
  const uint32_t second = __shfl_xor_sync(~0u, is_odd ? v[2] : v[3], 1);
  const uint32_t a[4] = {is_odd ? first : v[0], is_odd ? v[1] : first, is_odd ? second : v[2],
                         is_odd ? v[3] : second};
  const uint32_t third = __shfl_xor_sync(~0u, is_upper ? a[0] : a[2], 2);
  const uint32_t fourth = __shfl_xor_sync(~0u, is_upper ? a[1] : a[3], 2);
  vector = {is_upper ? third : a[0], is_upper ? fourth : a[1], is_upper ? a[2] : third,
            is_upper ? a[3] : fourth};
}

template <class Decoder>
struct NarrowProduct {
  using Sum = typename Decoder::Sum;
  using Item = NarrowItem<Decoder>;

  /// The block's place in the weight.
  struct Place {
    const uint8_t* panel = nullptr;
    int strip = 0;
    int tile = 0;  // of 16 outputs, within the strip: the first of two
    int lane = 0;
  };

  static __device__ __forceinline__ void load_weights(const MixedArguments& args,
                                                      const Place& place, int half, Item& item) {
    const uint8_t* chunk = place.panel + int64_t{half / 2} * args.chunk_bytes;
    const uint8_t* codes =
        chunk + place.strip * kStripCodeBytes + half % 2 * kHalfCodeBytes + place.lane * 16;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      item.codes[i] = load_streamed_16(codes + (place.tile + i) * 512);
      const int entry = (place.strip * 4 + place.tile + i) * 8 + place.lane / 4;
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const int group = (half % 2 * 2 + s) >> args.group_shift;
        item.groups[i][s] =
            Decoder::read_group(chunk + kChunkCodeBytes + group * group_bytes(Decoder::kKind) +
                                entry * group_entry_bytes(Decoder::kKind));
      }
    }
  }

  static __device__ __forceinline__ void load_inputs(const MixedArguments& args, const Place& place,
                                                     int half, Item& item) {
    const int token = place.lane / 4, lane = place.lane % 4;
#pragma unroll
    for (int v = 0; v < Item::kVectors; ++v) {
      item.x[v] = {0, 0, 0, 0};
      if (token < args.M) {
        const int64_t begin = int64_t{half} * (64 * Item::kVectors) + v * 64 + lane * 16;
        item.x[v] = __ldg(reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(args.x) +
                                                         token * args.x_stride_bytes + begin));
      }
    }
  }

  static __device__ __forceinline__ void multiply(Item& item, Sum (&sums)[2][4]) {
#pragma unroll
    for (int v = 0; v < Item::kVectors; ++v) transpose_in_quad(item.x[v]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4& codes = item.codes[i];
      uint32_t a[Decoder::kRegisters];
      Decoder::decode(a, codes.x, codes.y, item.groups[i][0]);
      if constexpr (is_s8(Decoder::kKind)) {
        Decoder::multiply_narrow(sums[i], a, item.x[0].x, item.x[0].y);
        Decoder::decode(a, codes.z, codes.w, item.groups[i][1]);
        Decoder::multiply_narrow(sums[i], a, item.x[0].z, item.x[0].w);
      } else {
        Decoder::multiply_narrow(sums[i], a, item.x[0].x, item.x[0].y);
        Decoder::multiply_narrow(sums[i], a + 4, item.x[0].z, item.x[0].w);
        Decoder::decode(a, codes.z, codes.w, item.groups[i][1]);
        Decoder::multiply_narrow(sums[i], a, item.x[1].x, item.x[1].y);
        Decoder::multiply_narrow(sums[i], a + 4, item.x[1].z, item.x[1].w);
      }
    }
  }

  /// Sums of the warp's halves: warp w has halves w, w + 8, ...
  static __device__ __forceinline__ void run(const MixedArguments& args, const Place& place,
                                             int warp, Sum (&sums)[2][4]) {
    Item items[kNarrowDepth], next[kNarrowDepth];
#pragma unroll
    for (int d = 0; d < kNarrowDepth; ++d) {
      const int half = warp + d * kNarrowWarps;
      if (half < args.num_halves) load_weights(args, place, half, items[d]);
    }
    wait_for_previous_kernel();
#pragma unroll
    for (int d = 0; d < kNarrowDepth; ++d) {
      const int half = warp + d * kNarrowWarps;
      if (half < args.num_halves) load_inputs(args, place, half, items[d]);
    }
#pragma unroll 1
    for (int begin = warp; begin < args.num_halves; begin += kNarrowDepth * kNarrowWarps) {
#pragma unroll
      for (int d = 0; d < kNarrowDepth; ++d) {
        const int half = begin + (kNarrowDepth + d) * kNarrowWarps;
        if (half < args.num_halves) {
          load_weights(args, place, half, next[d]);
          load_inputs(args, place, half, next[d]);
        }
      }
#pragma unroll
      for (int d = 0; d < kNarrowDepth; ++d) {
        if (begin + d * kNarrowWarps < args.num_halves) multiply(items[d], sums);
        items[d] = next[d];
      }
    }
    start_next_kernel();
  }

  /// One output of one token: the warps' sums in their order, scaled.
  static __device__ __forceinline__ void write(const MixedArguments& args, const Sum* warp_sums,
                                               int n, int m) {
    Sum sum = 0;
#pragma unroll
    for (int w = 0; w < kNarrowWarps; ++w) sum += warp_sums[w * kNarrowTokens * kNarrowPitch];
    auto value = static_cast<float>(sum);
    if constexpr (is_s8(Decoder::kKind)) {
      const RowScales& scales = args.scales;
      value *= (Decoder::kKind == MixedKind::kU4S8 ? 0.0625f : 1.0f) * scales.w_scales[n];
      if (scales.w_offsets != nullptr) {
        value = fmaf(-scales.w_offsets[n], static_cast<float>(scales.x_sums[m]), value);
      }
      value *= scales.x_scales[scales.is_x_tensor ? 0 : m];
    }
    if (args.bias != nullptr) value += args.bias[n];
    store_number(args.y, args.y_dtype, m * args.y_stride + n, value);
  }
};

template <class Decoder>
__global__ void __launch_bounds__(kNarrowWarps * 32, 2)
    narrow_kernel(const __grid_constant__ MixedArguments args) {
  using Product = NarrowProduct<Decoder>;
  using Sum = typename Decoder::Sum;
  __shared__ Sum warp_sums[kNarrowWarps * kNarrowTokens * kNarrowPitch];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int first = static_cast<int>(blockIdx.x) * kNarrowOutputs;
  typename Product::Place place;
  place.panel =
      args.weights + int64_t{first / kChunkOutputs} * args.schedule.num_chunks * args.chunk_bytes;
  place.strip = first % kChunkOutputs / 64;
  place.tile = first % 64 / 16;
  place.lane = lane;
  Sum sums[2][4] = {};
  Product::run(args, place, warp, sums);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = i * 16 + lane / 4 + e / 2 * 8, token = lane % 4 * 2 + e % 2;
      warp_sums[(warp * kNarrowTokens + token) * kNarrowPitch + row] = sums[i][e];
    }
  }
  __syncthreads();
  static_assert(kNarrowWarps * 32 == kNarrowOutputs * kNarrowTokens);
  const int row = thread % kNarrowOutputs, m = thread / kNarrowOutputs, n = first + row;
  if (m < args.M && n < args.N) {
    Product::write(args, warp_sums + m * kNarrowPitch + row, n, m);
  }
}

template <class Decoder>
void launch_narrow(const MixedArguments& args, cudaStream_t stream) {
  const int blocks = (args.N + kNarrowOutputs - 1) / kNarrowOutputs;
  launch_hopper_kernel(narrow_kernel<Decoder>,
                       {.num_blocks = blocks,
                        .num_threads = kNarrowWarps * 32,
                        .starts_early = args.starts_early,
                        .stream = stream},
                       args);
}

}  // namespace halley::cuda
