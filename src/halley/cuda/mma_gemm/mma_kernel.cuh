// The product of a 4-bit weight by mma.sync: a ring of stages that cp.async fills, codes decoded in
// registers. See README.md in this folder.
#pragma once

#include <cstdint>

#include "halley/cuda/mma_gemm/mma_decode.cuh"
#include "halley/cuda/mma_gemm/mma_epilogue.cuh"
#include "halley/cuda/mma_gemm/mma_plan.h"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

/// What a block computes.
struct MmaPlace {
  int panel = 0;  // of 128 outputs
  int token = 0;  // the first
  int split = 0;
  int chunk_begin = 0, chunk_end = 0;
};

__device__ __forceinline__ MmaPlace place_of_block(const MmaArguments& args, int tokens) {
  const int block = static_cast<int>(blockIdx.x);
  const int tiles = args.token_tiles * args.num_panels;
  MmaPlace place;
  place.token = block % args.token_tiles * tokens;
  place.panel = block % tiles / args.token_tiles;
  place.split = block / tiles;
  const auto part = [&](int split) {
    return static_cast<int>(int64_t{split} * args.num_chunks / args.num_splits);
  };
  place.chunk_begin = part(place.split);
  place.chunk_end = part(place.split + 1);
  return place;
}

template <class Decoder, int kTileIndex>
class MmaProduct {
 public:
  using Sum = typename Decoder::Sum;
  static constexpr MmaKind kKind = Decoder::kKind;
  static constexpr MmaTile kTile = kMmaTiles[kTileIndex];
  static constexpr int kThreads = kTile.num_threads();
  static constexpr int kTokens = kTile.tokens;
  /// Of a warp: operands of 16 outputs, of 8 tokens.
  static constexpr int kOutputTiles = kChunkOutputs / 16 / kTile.num_warps;
  static constexpr int kTokenTiles = kTokens / 8;
  using Sums = Sum[kOutputTiles][kTokenTiles][4];

  __device__ MmaProduct(const MmaArguments& args, const MmaPlace& place, uint32_t base)
      : args_(args), place_(place), base_(base) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    lane_ = thread % 32;
    first_tile_ = warp * kOutputTiles;
    constexpr int kBytes = row_bytes(kKind);
    copy_token_ = thread / kPieces;
    const int piece = thread % kPieces;
    copy_offset_ = piece_offset(kKind, copy_token_, piece);
    copy_begin_ = int64_t{place.chunk_begin} * kBytes + piece * 16;
    copy_from_ = args.x + (place.token + copy_token_) * args.x_stride_bytes;
    stage_bytes_ = static_cast<uint32_t>(weights_offset(kKind, kTokens) + args.chunk_bytes);
    if constexpr (kKind == MmaKind::kS4Blocks) stage_bytes_ += (kChunkOutputs + kTokens) * 4;
  }

  /// All chunks of the block. Afterwards nothing is in flight, and no thread reads stages.
  __device__ void run(Sums& sums) {
    const int count = place_.chunk_end - place_.chunk_begin, ahead = args_.num_stages - 1;
    for (int i = 0; i < ahead; ++i) {
      if (i < count) start_stage(i, place_.chunk_begin + i);
      ptx::cp_async_commit_group();
    }
    int slot = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      wait_for_stage();
      __syncthreads();
      // Every warp is done with the stage before this one, which is the next to be filled.
      if (i + ahead < count) {
        start_stage(slot == 0 ? ahead : slot - 1, place_.chunk_begin + i + ahead);
      }
      ptx::cp_async_commit_group();
      multiply_stage(base_ + static_cast<uint32_t>(slot) * stage_bytes_, place_.chunk_begin + i,
                     sums);
      slot = slot == ahead ? 0 : slot + 1;
    }
    ptx::cp_async_wait_group<0>();
    __syncthreads();
  }

  /// The block's sums to y, or to partial sums; by way of shared memory, so that neighbouring
  /// threads write neighbouring outputs.
  __device__ void write(const Sums& sums) {
#pragma unroll
    for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int token = 8 * j + lane_ % 4 * 2 + e % 2;
          const int output = (first_tile_ + i) * 16 + lane_ / 4 + e / 2 * 8;
          ptx::st_shared_b32(base_ + static_cast<uint32_t>(token * kSumsPitch + output) * 4,
                             word_of(sums[i][j][e]));
        }
      }
    }
    __syncthreads();
    constexpr int kVectors = kChunkOutputs / 4;
    for (int index = static_cast<int>(threadIdx.x); index < kTokens * kVectors; index += kThreads) {
      const int token = index / kVectors, column = index % kVectors * 4;
      const int m = place_.token + token, n = place_.panel * kChunkOutputs + column;
      if (m >= args_.M) break;
      const uint4 bits =
          ptx::ld_shared_b32x4(base_ + static_cast<uint32_t>(token * kSumsPitch + column) * 4);
      if (args_.num_splits > 1) {
        *reinterpret_cast<uint4*>(partials_of<Sum>(args_, place_.split, m, n)) = bits;
        continue;
      }
      const Sum four[4] = {bits_as<Sum>(bits.x), bits_as<Sum>(bits.y), bits_as<Sum>(bits.z),
                           bits_as<Sum>(bits.w)};
      finish_four(args_, m, n, four);
    }
  }

 private:
  /// Pieces of 16 bytes of a token's inputs. A thread copies the same piece of every
  /// kCopyTokens-th token: a multiple of 8, so that all of them are exchanged alike.
  static constexpr int kPieces = row_bytes(kKind) / 16;
  static constexpr int kCopyTokens = kThreads / kPieces;
  static_assert(kCopyTokens % 8 == 0);
  static constexpr int kCopies = (kTokens + kCopyTokens - 1) / kCopyTokens;

  __device__ void wait_for_stage() const {
    // All but the newest num_stages - 2 groups.
    if (args_.num_stages == 2) return ptx::cp_async_wait_group<0>();
    if (args_.num_stages == 3) return ptx::cp_async_wait_group<1>();
    ptx::cp_async_wait_group<2>();
  }

  __device__ void start_stage(int slot, int chunk) const {
    const uint32_t stage = base_ + static_cast<uint32_t>(slot) * stage_bytes_;
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t begin = copy_begin_ + int64_t{chunk - place_.chunk_begin} * row_bytes(kKind);
    const int64_t left = args_.x_row_bytes - begin;
    const int num_bytes = left < 0 ? 0 : left < 16 ? static_cast<int>(left) : 16;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int token = copy_token_ + i * kCopyTokens;
      if (kCopyTokens > kTokens && token >= kTokens) break;
      const bool is_there = place_.token + token < args_.M && num_bytes > 0;
      const uint8_t* from = copy_from_ + i * kCopyTokens * args_.x_stride_bytes + begin;
      ptx::cp_async_cg(stage + static_cast<uint32_t>(copy_offset_ + i * kCopyTokens * kRowBytes),
                       is_there ? from : args_.x, is_there ? num_bytes : 0);
    }
    const uint32_t weights = stage + static_cast<uint32_t>(weights_offset(kKind, kTokens));
    const uint8_t* chunk_from =
        args_.weights + (int64_t{place_.panel} * args_.num_chunks + chunk) * args_.chunk_bytes;
    for (int byte = thread * 16; byte < args_.chunk_bytes; byte += kThreads * 16) {
      ptx::cp_async_cg(weights + static_cast<uint32_t>(byte), chunk_from + byte, 16);
    }
    if constexpr (kKind == MmaKind::kS4Blocks) start_block_scales(stage, chunk);
  }

  /// 128 scales of outputs, then those of the tokens.
  __device__ void start_block_scales(uint32_t stage, int chunk) const {
    const uint32_t scales = stage + static_cast<uint32_t>(block_scales_offset(kKind, kTokens));
    const int thread = static_cast<int>(threadIdx.x);
    constexpr int kOutputPieces = kChunkOutputs / 4, kTokenPieces = kTokens / 4;
    static_assert(kOutputPieces + kTokenPieces <= kThreads);
    if (thread < kOutputPieces) {
      const int64_t row = int64_t{chunk} * args_.num_panels + place_.panel;
      ptx::cp_async_cg(scales + static_cast<uint32_t>(thread) * 16,
                       args_.w_block_scales + row * kChunkOutputs + thread * 4, 16);
    } else if (thread < kOutputPieces + kTokenPieces) {
      const int64_t begin = int64_t{chunk} * args_.x_scales_pitch + place_.token;
      ptx::cp_async_cg(scales + static_cast<uint32_t>(thread) * 16,
                       args_.x_block_scales + begin + (thread - kOutputPieces) * 4, 16);
    }
  }

  /// A lane's 16 bytes of codes of output tile `i` and 64 inputs.
  __device__ uint4 load_codes(uint32_t weights, int i, int half) const {
    const int begin = codes_offset(kKind, first_tile_ + i, half);
    return ptx::ld_shared_b32x4(weights + static_cast<uint32_t>(begin + lane_ * 16));
  }

  /// A unit of the eight tokens of token tile `j`.
  __device__ void load_tokens(uint32_t stage, int j, int unit, uint32_t (&b)[4]) const {
    const int token = 8 * j + lane_ % 8;
    ptx::ldmatrix_x4(
        b, stage + static_cast<uint32_t>(piece_offset(kKind, token, unit * 4 + lane_ / 8)));
  }

  __device__ void multiply_stage(uint32_t stage, int chunk, Sums& sums) const {
    if constexpr (kKind == MmaKind::kS4Blocks) {
      multiply_block(stage, chunk, sums);
    } else {
      multiply_units<Decoder>(stage, sums);
    }
  }

  template <class Units>
  __device__ void multiply_units(uint32_t stage,
                                 typename Units::Sum (&sums)[kOutputTiles][kTokenTiles][4]) const {
    const uint32_t weights = stage + static_cast<uint32_t>(weights_offset(kKind, kTokens));
    constexpr int kHalfUnits = Units::kUnits / 2;
    const GroupSteps steps = {.shift = args_.group_shift,
                              .pitch_bytes = static_cast<uint32_t>(group_bytes(layout_of(kKind)))};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 codes[kOutputTiles];
#pragma unroll
      for (int i = 0; i < kOutputTiles; ++i) codes[i] = load_codes(weights, i, half);
#pragma unroll
      for (int u = 0; u < kHalfUnits; ++u) {
        const int unit = half * kHalfUnits + u;
        uint32_t a[kOutputTiles][8];
#pragma unroll
        for (int i = 0; i < kOutputTiles; ++i) {
          const int entry = group_entry((first_tile_ + i) * 16 + lane_ / 4);
          const uint32_t groups =
              weights + kChunkCodeBytes +
              static_cast<uint32_t>(entry * group_entry_bytes(layout_of(kKind)));
          Units::decode(a[i], unit, codes[i], Units::load_groups(groups, unit, steps));
        }
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) {
          uint32_t b[4];
          load_tokens(stage, j, unit, b);
#pragma unroll
          for (int i = 0; i < kOutputTiles; ++i) Units::multiply(sums[i][j], a[i], b);
        }
      }
    }
  }

  /// A block of 128 inputs: its sums in s32, scaled and added to those of the blocks before.
  __device__ void multiply_block(uint32_t stage, int chunk, Sums& totals) const {
    int32_t sums[kOutputTiles][kTokenTiles][4];
#pragma unroll
    for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] = kSumBegin;
      }
    }
    const bool is_s8 = chunk < args_.num_s8_chunks;
    if (is_s8) {
      multiply_units<typename Decoder::S8>(stage, sums);
    } else {
      multiply_units<typename Decoder::S4>(stage, sums);
    }
    add_scaled(stage, is_s8 ? 0.0625f : 1.0f, sums, totals);
  }

  /// Sums begin with the bits of 1.5 * 2^23: read as f32, they are that number plus the sum, since
  /// a block's has fewer than 22 bits and a sign. No conversion is needed.
  static constexpr int32_t kSumBegin = 0x4B400000;
  static constexpr float kSumBeginValue = 12582912.0f;

  __device__ void add_scaled(uint32_t stage, float factor,
                             const int32_t (&sums)[kOutputTiles][kTokenTiles][4],
                             Sums& totals) const {
    const uint32_t scales = stage + static_cast<uint32_t>(block_scales_offset(kKind, kTokens));
    float w_scales[kOutputTiles][2];
#pragma unroll
    for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int output = (first_tile_ + i) * 16 + h * 8 + lane_ / 4;
        w_scales[i][h] =
            factor *
            __uint_as_float(ptx::ld_shared_b32(scales + static_cast<uint32_t>(output) * 4));
      }
    }
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
      const int token = kChunkOutputs + 8 * j + lane_ % 4 * 2;
      const uint2 bits = ptx::ld_shared_b32x2(scales + static_cast<uint32_t>(token) * 4);
      const float x_scales[2] = {__uint_as_float(bits.x), __uint_as_float(bits.y)};
#pragma unroll
      for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float sum = __int_as_float(sums[i][j][e]) - kSumBeginValue;
          totals[i][j][e] = fmaf(w_scales[i][e / 2] * sum, x_scales[e % 2], totals[i][j][e]);
        }
      }
    }
  }

  static constexpr int kRowBytes = row_bytes(kKind);

  const MmaArguments& args_;
  const MmaPlace& place_;
  uint32_t base_;
  uint32_t stage_bytes_ = 0;
  int lane_ = 0;
  int first_tile_ = 0;  // of 16 outputs: the warp's
  int copy_token_ = 0, copy_offset_ = 0;
  int64_t copy_begin_ = 0;  // byte of a token's inputs, in the first chunk
  const uint8_t* copy_from_ = nullptr;
};

template <class Decoder, int kTileIndex>
__global__ void __launch_bounds__(kMmaTiles[kTileIndex].num_threads(), kMmaBlocks)
    mma_kernel(const __grid_constant__ MmaArguments args) {
  extern __shared__ uint4 memory[];
  using Product = MmaProduct<Decoder, kTileIndex>;
  const MmaPlace place = place_of_block(args, Product::kTokens);
  Product product(args, place, ptx::cvta_to_shared(memory));
  typename Product::Sums sums = {};
  product.run(sums);
  product.write(sums);
}

template <class Decoder, int kTileIndex>
void launch_mma(const CudaContext& context, const MmaArguments& args, int shared_bytes) {
  const auto blocks = static_cast<unsigned>(args.token_tiles * args.num_panels * args.num_splits);
  launch_kernel(context, "mma_gemm",
                {.grid = dim3(blocks),
                 .block = dim3(kMmaTiles[kTileIndex].num_threads()),
                 .shared_bytes = static_cast<size_t>(shared_bytes),
                 .pdl = false},
                mma_kernel<Decoder, kTileIndex>, args);
}

}  // namespace halley::cuda
