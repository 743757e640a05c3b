// Codes in rows to the order that products take, and decoded again to rows of numbers.
#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemv/gemv_arguments.h"
#include "halley/cuda/gemv/gemv_decode.cuh"
#include "halley/cuda/gemv/gemv_group.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;

struct PackArguments {
  const uint8_t* rows;
  int64_t num_rows, num_inputs, stride;
  uint32_t* words;
  int64_t num_words;
  GemvInputs inputs;
  int bits, num_pieces;
};

/// A thread has a word.
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const __grid_constant__ PackArguments args) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= args.num_words) return;
  const int lane_words = gemv_lane_words(args.bits);
  const int lane = static_cast<int>(at % 32), word = static_cast<int>(at / 32 % lane_words);
  const int64_t piece = at / 32 / lane_words;  // of all tiles
  const int64_t n_begin = piece / args.num_pieces * kGemvTileOutputs;
  const int64_t k_begin = piece % args.num_pieces * kGemvPieceInputs;
  const uint32_t shift = args.bits == 8 ? 128 : 0;
  uint32_t packed = 0;
  for (int i = 0; i < 32 / gemv_slot_bits(args.bits, word); ++i) {
    const GemvSlot slot = gemv_slot(args.inputs, args.bits, lane, word, i);
    const int64_t n = n_begin + slot.output, k = k_begin + slot.input;
    if (n >= args.num_rows || k >= args.num_inputs) continue;
    const uint32_t code = args.rows[n * args.stride + k] + shift;
    packed |= (code >> slot.low & ((1u << slot.count) - 1)) << slot.shift;
  }
  args.words[(piece * gemv_piece_bytes(args.bits) + gemv_word_offset(args.bits, word, lane)) / 4] =
      packed;
}

struct DecodeArguments {
  GemvWeightArguments weight;
  uint8_t* rows;
  int64_t first_row, num_rows, num_inputs, row_bytes;
};

__device__ float2 to_float2(GemvF16, uint32_t pair) {
  return {f16_half(pair, 0), f16_half(pair, 1)};
}
__device__ float2 to_float2(GemvBf16, uint32_t pair) {
  return {bf16_half(pair, 0), bf16_half(pair, 1)};
}
__device__ uint32_t to_pair(GemvF16, float2 value) {
  const __half2 pair = __floats2half2_rn(value.x, value.y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ uint32_t to_pair(GemvBf16, float2 value) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(value.x, value.y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

/// A warp has a piece of a tile, a block eight pieces of tile blockIdx.y, ...
template <class Numbers, int kBits>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const __grid_constant__ DecodeArguments args) {
  using Decoder = GemvDecoder<Numbers, kBits>;
  constexpr int kWords = gemv_lane_words(kBits), kSteps = kGemvPieceInputs / Numbers::kStepInputs;
  const GemvWeightArguments& weight = args.weight;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int piece = static_cast<int>(blockIdx.x * (kThreads / 32) + threadIdx.x / 32);
  if (piece >= weight.num_pieces) return;
  const int64_t end = args.first_row + args.num_rows;
  for (int64_t tile = args.first_row / kGemvTileOutputs + blockIdx.y; tile * kGemvTileOutputs < end;
       tile += gridDim.y) {
    const uint8_t* from =
        weight.codes + (tile * weight.num_pieces + piece) * gemv_piece_bytes(kBits);
    uint32_t words[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      words[w] = *reinterpret_cast<const uint32_t*>(from + gemv_word_offset(kBits, w, lane));
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      float2 values[2][4] = {};
#pragma unroll
      for (int part = 0; part < Decoder::kParts; ++part) {
        uint32_t a[8];
        Decoder::decode(words, step, part, a);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int row = 0; row < 2; ++row) {
            const float2 pair = to_float2(Numbers{}, a[2 * r + row]);
            values[row][r].x += pair.x;
            values[row][r].y += pair.y;
          }
        }
      }
      const int group_steps = kSteps / weight.groups_of_entry;
      const GemvGroup group = load_group(
          weight, tile, weight.scale_dtype == DType::kF32 ? 0 : piece >> weight.entry_shift,
          step / group_steps, lane);
      const int64_t k = int64_t{piece} * kGemvPieceInputs + step * 32 + lane % 4 * 8;
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int64_t n = tile * kGemvTileOutputs + row * 8 + lane / 4;
        if (n < args.first_row || n >= end || k >= args.num_inputs) continue;
        const float scale = weight.scale_dtype == DType::kF32
                                ? static_cast<const float*>(weight.scales)[n]
                                : group_scale(weight, group, row);
        const float taken = Decoder::base(row) + group_zero(weight, group, row);
        uint32_t numbers[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float2& value = values[row][r];
          numbers[r] = to_pair(Numbers{}, {scale * (value.x - taken), scale * (value.y - taken)});
        }
        *reinterpret_cast<uint4*>(args.rows + (n - args.first_row) * args.row_bytes + k * 2) = {
            numbers[0], numbers[1], numbers[2], numbers[3]};
      }
    }
  }
}

template <class Numbers, int kBits>
void launch_decode(const CudaContext& context, const DecodeArguments& args) {
  const dim3 grid(
      ceil_div<unsigned>(static_cast<unsigned>(args.weight.num_pieces), kThreads / 32),
      static_cast<unsigned>(std::min<int64_t>(args.num_rows / kGemvTileOutputs + 2, 65535)));
  launch_kernel(context, "decode_gemv_rows", {.grid = grid, .block = dim3(kThreads), .pdl = false},
                decode_kernel<Numbers, kBits>, args);
}

template <class Numbers>
void decode_numbers(const CudaContext& context, int bits, const DecodeArguments& args) {
  switch (bits) {
    case 8:
      return launch_decode<Numbers, 8>(context, args);
    case 3:
      return launch_decode<Numbers, 3>(context, args);
    case 2:
      return launch_decode<Numbers, 2>(context, args);
    default:
      return launch_decode<Numbers, 1>(context, args);
  }
}

}  // namespace

void pack_gemv_rows(const CudaContext& context, ConstMatrix rows, int64_t first_row,
                    const GemvWeight& weight) {
  const GemvShape& shape = weight.shape;
  HALLEY_CHECK(rows.dtype == DType::kI8 && rows.num_cols == shape.K, name_of(rows.dtype),
               rows.num_cols, shape.K);
  HALLEY_CHECK(first_row % kGemvTileOutputs == 0 && first_row + rows.num_rows <= shape.N &&
                   (rows.num_rows % kGemvTileOutputs == 0 || first_row + rows.num_rows == shape.N),
               first_row, rows.num_rows, shape.N);
  if (rows.num_rows == 0 || shape.K == 0) return;
  const int64_t tiles = ceil_div<int64_t>(rows.num_rows, kGemvTileOutputs);
  const int64_t piece_bytes = gemv_piece_bytes(shape.bits);
  auto* codes = reinterpret_cast<uint8_t*>(weight.codes.data());
  const PackArguments args = {
      .rows = reinterpret_cast<const uint8_t*>(rows.data),
      .num_rows = rows.num_rows,
      .num_inputs = shape.K,
      .stride = rows.row_stride,
      .words = reinterpret_cast<uint32_t*>(codes + first_row / kGemvTileOutputs *
                                                       shape.num_pieces() * piece_bytes),
      .num_words = tiles * shape.num_pieces() * piece_bytes / 4,
      .inputs = shape.inputs,
      .bits = shape.bits,
      .num_pieces = static_cast<int>(shape.num_pieces())};
  const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(args.num_words, kThreads));
  launch_kernel(context, "pack_gemv_rows",
                {.grid = dim3(blocks), .block = dim3(kThreads), .pdl = false}, pack_kernel, args);
}

void decode_gemv_rows(const CudaContext& context, const GemvWeight& weight, int64_t first_row,
                      Matrix rows) {
  const GemvShape& shape = weight.shape;
  HALLEY_CHECK(shape.inputs == GemvInputs::kNumbers && rows.num_cols == shape.K &&
                   first_row + rows.num_rows <= shape.N,
               first_row, rows.num_rows, shape.N, rows.num_cols, shape.K);
  HALLEY_CHECK(row_alignment(rows) == 16, rows.row_stride);
  if (rows.num_rows == 0 || rows.num_cols == 0) return;
  const DecodeArguments args = {.weight = gemv_weight_arguments(weight),
                                .rows = reinterpret_cast<uint8_t*>(rows.data),
                                .first_row = first_row,
                                .num_rows = rows.num_rows,
                                .num_inputs = shape.K,
                                .row_bytes = rows.row_stride * 2};
  switch (rows.dtype) {
    case DType::kF16:
      return decode_numbers<GemvF16>(context, shape.bits, args);
    case DType::kBf16:
      return decode_numbers<GemvBf16>(context, shape.bits, args);
    default:
      HALLEY_CHECK(false, name_of(rows.dtype));
  }
}

}  // namespace halley::cuda
