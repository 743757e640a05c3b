// The kernel of a product of one or two rows of f16 or bf16 and a weight of few bits: inputs as
// digits of s8 (input_digits.cuh), which codes are multiplied with as they are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/input_digits.cuh"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemv/gemv_arguments.h"
#include "halley/cuda/gemv/gemv_digits.h"
#include "halley/cuda/gemv/gemv_group.cuh"
#include "halley/cuda/gemv/gemv_layout.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

/// A lane's codes of a tile and piece as unsigned bytes: product i of kProducts takes operand A and
/// words of the inputs. Those of the outputs g + 8 are kUpper times too large.
template <int kBits>
struct DigitDecoder;

/// The inputs of a step of 32 that the two words of DigitColumns have: {0, 4, 1, 5} and {2, 6, 3,
/// 7} of the lane's eight. These are {0, 2, 1, 3} and {4, 6, 5, 7} of two such words, or the pairs
/// of both steps of two words of the same inputs.
__device__ __forceinline__ uint32_t even_bytes(uint32_t u, uint32_t v) {
  return __byte_perm(u, v, 0x6240);
}
__device__ __forceinline__ uint32_t odd_bytes(uint32_t u, uint32_t v) {
  return __byte_perm(u, v, 0x7351);
}

template <>
struct DigitDecoder<8> {
  static constexpr int kProducts = 4;
  static constexpr float kUpper = 1;
  uint32_t x[8];

  __device__ __forceinline__ explicit DigitDecoder(const uint32_t (&inputs)[8]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      x[2 * step] = even_bytes(inputs[2 * step], inputs[2 * step + 1]);
      x[2 * step + 1] = odd_bytes(inputs[2 * step], inputs[2 * step + 1]);
    }
  }
  __device__ __forceinline__ void multiply(int i, const uint32_t* words, int32_t (&sums)[4]) const {
    const uint32_t a[4] = {words[4 * i], words[4 * i + 2], words[4 * i + 1], words[4 * i + 3]};
    add_product(i == 0, sums, a, x[2 * i], x[2 * i + 1]);
  }
};

template <>
struct DigitDecoder<2> {
  static constexpr int kProducts = 4;
  static constexpr float kUpper = 4;
  const uint32_t (&x)[8];

  __device__ __forceinline__ explicit DigitDecoder(const uint32_t (&inputs)[8]) : x(inputs) {}
  __device__ __forceinline__ void multiply(int i, const uint32_t* words, int32_t (&sums)[4]) const {
    const int pair = i / 2, half = i % 2;
    const uint32_t u = words[2 * pair] >> (4 * half), v = words[2 * pair + 1] >> (4 * half);
    const uint32_t a[4] = {u & 0x03030303u, u & 0x0C0C0C0Cu, v & 0x03030303u, v & 0x0C0C0C0Cu};
    add_product(i == 0, sums, a, x[4 * pair + half], x[4 * pair + 2 + half]);
  }
};

/// One bit of each code: the lower outputs' counts kLow, the upper ones' kHigh.
template <int kLow, int kHigh>
struct DigitBitPlane {
  uint32_t x[8];

  __device__ __forceinline__ explicit DigitBitPlane(const uint32_t (&inputs)[8]) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint32_t* of_pair = inputs + 4 * pair;
      x[4 * pair] = even_bytes(of_pair[0], of_pair[2]);
      x[4 * pair + 1] = even_bytes(of_pair[1], of_pair[3]);
      x[4 * pair + 2] = odd_bytes(of_pair[0], of_pair[2]);
      x[4 * pair + 3] = odd_bytes(of_pair[1], of_pair[3]);
    }
  }
  /// The bit `from` of each byte as the bit `to`.
  static __device__ __forceinline__ uint32_t moved(uint32_t word, int from, int to) {
    return (to >= from ? word << (to - from) : word >> (from - to)) & 0x01010101u << to;
  }
  __device__ __forceinline__ void multiply(int i, bool is_first, const uint32_t* words,
                                           int32_t (&sums)[4]) const {
    const uint32_t a[4] = {moved(words[0], 2 * i, kLow), moved(words[0], 2 * i + 1, kHigh),
                           moved(words[1], 2 * i, kLow), moved(words[1], 2 * i + 1, kHigh)};
    add_product(is_first, sums, a, x[i], x[4 + i]);
  }
};

template <>
struct DigitDecoder<3> {
  static constexpr int kProducts = 8;
  static constexpr float kUpper = 4;
  DigitDecoder<2> low;
  DigitBitPlane<2, 4> high;

  __device__ __forceinline__ explicit DigitDecoder(const uint32_t (&inputs)[8])
      : low(inputs), high(inputs) {}
  __device__ __forceinline__ void multiply(int i, const uint32_t* words, int32_t (&sums)[4]) const {
    if (i < 4) {
      low.multiply(i, words, sums);
    } else {
      high.multiply(i - 4, false, words + 4, sums);
    }
  }
};

/// A warp's ring: a stage has a piece of some tiles, [tile][piece bytes], and their scales and
/// zeros, [2][tile][8] words. Each lane copies the codes that it reads itself.
template <int kBits>
struct GemvDigitRing {
  static constexpr int kPieceBytes = gemv_piece_bytes(kBits);
  static constexpr int kFull = gemv_lane_words(kBits) / 4;  // vectors of 16 bytes
  static constexpr bool kHasHalf = gemv_lane_words(kBits) % 4 != 0;

  const GemvArguments& args;
  const GemvDigitPlan& plan;
  uint8_t* base;
  int warp, lane;
  int tile_end;
  int tile, piece, stage;  // what is copied next, and to where

  __device__ __forceinline__ uint8_t* bytes(int index) const {
    return base + index * plan.stage_bytes;
  }
  __device__ __forceinline__ bool is_grouped() const {
    return args.weight.scale_dtype != DType::kF32;
  }

  __device__ __forceinline__ void copy_next() {
    const GemvWeightArguments& weight = args.weight;
    const int tiles = min(plan.tiles, tile_end - tile);
    uint8_t* to = bytes(stage);
    if (tiles > 0) {
      const int64_t tile_bytes = int64_t{weight.num_pieces} * kPieceBytes;
      const uint8_t* from = weight.codes + tile * tile_bytes + int64_t{piece} * kPieceBytes;
      for (int i = 0; i < tiles; ++i) {
#pragma unroll
        for (int v = 0; v < kFull; ++v) {
          const int offset = gemv_word_offset(kBits, 4 * v, lane);
          ptx::cp_async_cg<ptx::L2Prefetch128B>(ptx::cvta_to_shared(to + i * kPieceBytes + offset),
                                                from + offset);
        }
        if constexpr (kHasHalf) {
          const int offset = gemv_word_offset(kBits, 4 * kFull, lane);
          ptx::cp_async_ca<8, ptx::L2Prefetch128B>(
              ptx::cvta_to_shared(to + i * kPieceBytes + offset), from + offset);
        }
        from += tile_bytes;
      }
      // Two lanes a tile for scales, and two for zeros.
      const int i = lane / 2 % 8, kind = lane / 16;
      const void* words = kind == 0 ? weight.scales : weight.zeros;
      if (is_grouped() && i < tiles && words != nullptr) {
        const int64_t entry =
            int64_t{tile + i} * weight.num_entries + (piece >> weight.entry_shift);
        ptx::cp_async_cg<ptx::L2Prefetch128B>(
            ptx::cvta_to_shared(to + plan.tiles * kPieceBytes + (kind * plan.tiles + i) * 32 +
                                lane % 2 * 16),
            static_cast<const uint8_t*>(words) + entry * 32 + lane % 2 * 16);
      }
    }
    ptx::cp_async_commit_group();
    if (++stage == plan.stages) stage = 0;
    piece += kGemvDigitWarps;
    if (piece >= weight.num_pieces) {
      piece = warp;
      tile += plan.tiles;
    }
  }

  /// The oldest stage, for all lanes.
  __device__ __forceinline__ void wait() const {
    switch (plan.stages) {
      case 1:
        ptx::cp_async_wait_group<0>();
        break;
      case 2:
        ptx::cp_async_wait_group<1>();
        break;
      case 3:
        ptx::cp_async_wait_group<2>();
        break;
      default:
        ptx::cp_async_wait_group<3>();
    }
    __syncwarp();
  }
};

/// Sums of a tile: of the outputs g and g + 8, of the lane's digits.
struct GemvDigitTotals {
  float of[2] = {};
};

/// Blocks have consecutive tiles and go through them some at a time; warp w has pieces w, w + 16,
/// ... of all of them.
template <class Type, int kBits>
__global__ void __launch_bounds__(kGemvDigitWarps * 32, 1)
    gemv_digits_kernel(const __grid_constant__ GemvArguments args,
                       const __grid_constant__ GemvDigitPlan plan) {
  constexpr int kPieceBytes = gemv_piece_bytes(kBits), kWords = gemv_lane_words(kBits);
  constexpr int kTiles = gemv_digit_tiles(kBits);
  extern __shared__ uint4 shared_memory[];
  auto* const shared = reinterpret_cast<uint8_t*>(shared_memory);
  const GemvWeightArguments& weight = args.weight;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int64_t block = blockIdx.x, num_blocks = gridDim.x;
  const auto tile_begin = static_cast<int>(weight.num_tiles * block / num_blocks);
  const auto tile_end = static_cast<int>(weight.num_tiles * (block + 1) / num_blocks);
  const bool has_pieces = warp < weight.num_pieces;
  GemvDigitRing<kBits> ring = {.args = args,
                               .plan = plan,
                               .base = shared + warp * plan.stages * plan.stage_bytes,
                               .warp = warp,
                               .lane = lane,
                               .tile_end = has_pieces ? tile_end : tile_begin,
                               .tile = tile_begin,
                               .piece = warp,
                               .stage = 0};
  const bool is_grouped = ring.is_grouped(), is_f16 = weight.scale_dtype == DType::kF16;
  const bool has_zeros = is_grouped && weight.zeros != nullptr;
  const float zero = is_grouped ? weight.zero : 0;
  // Behind more of them the inputs would come late.
  constexpr int kBeforeInputs = 2;
#pragma unroll 1
  for (int i = 0; i < kBeforeInputs; ++i) ring.copy_next();
  ptx::griddepcontrol_wait();
  const int s = lane / 8, c = lane / 2 % 4, j = lane % 2;
  const InputDigits<Type> digits = {
      .source = {args.x, args.x_row_bytes, args.x_row_used_bytes, args.M, weight.num_pieces},
      .bytes = shared + plan.digits,
      .places = {s * 64 + c * 16 + j * 4, s * 64 + c * 16 + j * 4 + 8, c * 8 + s * 2 + j},
      .lane = lane};
  digits.convert_all(warp, kGemvDigitWarps);
#pragma unroll 1
  for (int i = kBeforeInputs; i < plan.stages; ++i) ring.copy_next();
  auto* const all_sums = reinterpret_cast<float*>(shared + plan.sums);
  int stage = 0, turn = 0;
#pragma unroll 1
  for (int tile = tile_begin; tile < tile_end; tile += plan.tiles, turn ^= 1) {
    const int tiles = min(plan.tiles, tile_end - tile);
    GemvDigitTotals totals[kTiles];
    float all_ones = 0;
#pragma unroll 1
    for (int piece = warp; piece < weight.num_pieces; piece += kGemvDigitWarps) {
      DigitColumns columns;
      columns.load(digits, piece);
      int32_t sums[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        constexpr uint32_t kOnes[4] = {0x01010101u, 0, 0x01010101u, 0};
        add_product(i == 0, sums, kOnes, columns.x[2 * i], columns.x[2 * i + 1]);
      }
      const float ones = columns.total(sums);
      all_ones += ones;
      const DigitDecoder<kBits> decoder(columns.x);
      ring.wait();
      const uint8_t* bytes = ring.bytes(stage);
      const auto multiply_tile = [&](int i) {
        uint32_t words[kWords];
        int32_t products[4];
        const uint8_t* codes = bytes + i * kPieceBytes;
#pragma unroll
        for (int w = 0; w < kWords; w += 2) {
          const auto two =
              *reinterpret_cast<const uint2*>(codes + gemv_word_offset(kBits, w, lane));
          words[w] = two.x;
          words[w + 1] = two.y;
        }
#pragma unroll
        for (int p = 0; p < DigitDecoder<kBits>::kProducts; ++p) {
          decoder.multiply(p, words, products);
        }
        const float lower = columns.total(products);
        const float upper = columns.total(products + 2) * (1 / DigitDecoder<kBits>::kUpper);
        // Of outputs with one scale: 1, and the zero is taken off at the end.
        const auto* of_groups =
            reinterpret_cast<const uint32_t*>(bytes + plan.tiles * kPieceBytes) + lane / 4;
        const uint32_t scales = is_grouped ? of_groups[i * 8] : 0;
        const uint32_t zeros = has_zeros ? of_groups[(plan.tiles + i) * 8] : 0;
        const float lower_scale = !is_grouped ? 1
                                  : is_f16    ? f16_half(scales, 0)
                                              : bf16_half(scales, 0);
        const float upper_scale = !is_grouped ? 1
                                  : is_f16    ? f16_half(scales, 1)
                                              : bf16_half(scales, 1);
        const float lower_zero = has_zeros ? f16_half(zeros, 0) : zero;
        const float upper_zero = has_zeros ? f16_half(zeros, 1) : zero;
        totals[i].of[0] = fmaf(lower_scale, fmaf(-lower_zero, ones, lower), totals[i].of[0]);
        totals[i].of[1] = fmaf(upper_scale, fmaf(-upper_zero, ones, upper), totals[i].of[1]);
      };
      // Two at a time without a branch between.
#pragma unroll
      for (int i = 0; i < kTiles; i += 2) {
        if (i + 1 < tiles) {
          multiply_tile(i);
          multiply_tile(i + 1);
        } else if (i < tiles) {
          multiply_tile(i);
        }
      }
      __syncwarp();
      ring.copy_next();
      stage = stage + 1 == plan.stages ? 0 : stage + 1;
    }
    if (tile + plan.tiles >= tile_end) ptx::griddepcontrol_launch_dependents();
    float* const sums_of_turn = all_sums + turn * kGemvDigitWarps * args.M * plan.sum_pitch;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i >= tiles) continue;
      if (!is_grouped) {
        const GemvGroup group = load_group(weight, tile + i, 0, 0, lane);
        totals[i].of[0] = fmaf(-group_zero(weight, group, 0), all_ones, totals[i].of[0]);
        totals[i].of[1] = fmaf(-group_zero(weight, group, 1), all_ones, totals[i].of[1]);
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        // Both halves of a token's digits.
        const float sum = totals[i].of[e] + __shfl_xor_sync(~0u, totals[i].of[e], 1);
        const int token = lane % 4 / 2;
        if (lane % 2 == 0 && token < args.M) {
          sums_of_turn[(warp * args.M + token) * plan.sum_pitch + i * kGemvTileOutputs + e * 8 +
                       lane / 4] = sum;
        }
      }
    }
    // Those of the turn before the last have been read: this barrier was between.
    __syncthreads();
    const int outputs = tiles * kGemvTileOutputs;
    const int m = thread / outputs, place = thread % outputs;
    const int64_t n = int64_t{tile} * kGemvTileOutputs + place;
    if (m < args.M && n < args.N) {
      float value = 0;
#pragma unroll
      for (int part = 0; part < kGemvDigitWarps; ++part) {
        value += sums_of_turn[(part * args.M + m) * plan.sum_pitch + place];
      }
      if (!is_grouped) value *= static_cast<const float*>(weight.scales)[n];
      if (args.bias != nullptr) value += args.bias[n];
      store_number(args.y, args.y_dtype, m * args.y_stride + n, value);
    }
  }
}

/// See gemv_arguments.h.
template <class Type, int kBits>
void launch_gemv_digits(const CudaContext& context, const GemvDigitPlan& plan,
                        const GemvArguments& args) {
  const auto kernel = gemv_digits_kernel<Type, kBits>;
  launch_kernel(context, "product of one or two rows and codes",
                {.grid = dim3(static_cast<unsigned>(plan.blocks)),
                 .block = dim3(kGemvDigitWarps * 32),
                 .shared_bytes = static_cast<size_t>(plan.num_bytes)},
                kernel, args, plan);
}

}  // namespace halley::cuda
