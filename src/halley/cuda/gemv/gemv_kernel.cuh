// The kernel of a product of a few rows and a weight of few bits, and its launch for one type of
// inputs and one number of bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemv/gemv_arguments.h"
#include "halley/cuda/gemv/gemv_decode.cuh"
#include "halley/cuda/gemv/gemv_group.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/registers.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

inline constexpr int kGemvWarps = 8;
inline constexpr int kGemvThreads = 32 * kGemvWarps;

/// Sizes of what a lane holds.
template <class Numbers, int kBits, int kTiles, int kRowTiles>
struct GemvSizes {
  static constexpr int kWords = gemv_lane_words(kBits);
  static constexpr int kSteps = kGemvPieceInputs / Numbers::kStepInputs;
  /// Pieces on their way: as many as there are registers for.
  static constexpr int kDepth = std::max(1, std::min(4, 32 / kRowTiles / (kWords * kTiles)));
  static constexpr int kOutputs = kGemvTileOutputs * kTiles;
  /// Of partial sums: a gap, so that lanes that store neighbouring rows do so in other banks.
  static constexpr int kOutputStride = kOutputs + 4;
};

/// Sums of a warp: of codes (base and all), of x, and of groups that are complete.
template <class Numbers, int kTiles, int kRowTiles>
struct GemvSums {
  using Sum = typename Numbers::Sum;
  Sum codes[kTiles][kRowTiles][4] = {};
  Sum ones[kRowTiles][4] = {};
  float total[kTiles][kRowTiles][4] = {};

  /// The end of a group, or of what a warp has of it.
  template <class Decoder>
  __device__ __forceinline__ void close(const GemvWeightArguments& weight,
                                        const GemvGroup (&groups)[kTiles]) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float taken = Decoder::base(e / 2) + group_zero(weight, groups[i], e / 2);
          const float sum =
              fmaf(-taken, static_cast<float>(ones[j][e % 2]), static_cast<float>(codes[i][j][e]));
          total[i][j][e] = fmaf(group_scale(weight, groups[i], e / 2), sum, total[i][j][e]);
          codes[i][j][e] = 0;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) ones[j][e] = 0;
    }
  }
};

/// Scales and zeros of the groups of pieces on their way: a warp copies them ahead.
template <int kTiles, int kDepth>
struct GemvGroupWords {
  uint32_t words[2][kDepth][kTiles][8][kGemvPieceInputs / kGemvGroupMin];

  __device__ __forceinline__ void start(const GemvWeightArguments& weight, int64_t first_tile,
                                        int piece, int slot, int lane) {
    const int row = lane / 4, group = lane % 4;
    if (piece < weight.num_pieces && group < weight.groups_of_entry) {
      const int entry = piece >> weight.entry_shift;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int64_t tile = min(first_tile + i, weight.num_tiles - 1);
        const int64_t at =
            ((tile * weight.num_entries + entry) * 8 + row) * weight.groups_of_entry + group;
        ptx::cp_async_ca<4>(ptx::cvta_to_shared(&words[0][slot][i][row][group]),
                            static_cast<const uint32_t*>(weight.scales) + at);
        if (weight.zeros != nullptr) {
          ptx::cp_async_ca<4>(ptx::cvta_to_shared(&words[1][slot][i][row][group]),
                              static_cast<const uint32_t*>(weight.zeros) + at);
        }
      }
    }
    ptx::cp_async_commit_group();
  }

  __device__ __forceinline__ GemvGroup get(const GemvWeightArguments& weight, int slot, int tile,
                                           int group, int lane) const {
    return {words[0][slot][tile][lane / 4][group],
            weight.zeros == nullptr ? 0 : words[1][slot][tile][lane / 4][group]};
  }
};

/// A block has kOutputs outputs of all rows; warp w of it pieces w, w + 8, ... of the inputs.
template <class Numbers, int kBits, int kTiles, int kRowTiles>
__global__ void __launch_bounds__(kGemvThreads, 2)
    gemv_kernel(const __grid_constant__ GemvArguments args) {
  using Sizes = GemvSizes<Numbers, kBits, kTiles, kRowTiles>;
  using Decoder = GemvDecoder<Numbers, kBits>;
  constexpr int kRows = 8 * kRowTiles, kSteps = Sizes::kSteps, kDepth = Sizes::kDepth;
  constexpr int kVectors = (Sizes::kWords + 3) / 4;
  __shared__ float partial[kGemvWarps][kRows][Sizes::kOutputStride];
  __shared__ GemvGroupWords<kTiles, kDepth> group_words[kGemvWarps];
  const GemvWeightArguments& weight = args.weight;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first_tile = int64_t{blockIdx.x} * kTiles;
  const int64_t tile_bytes = int64_t{weight.num_pieces} * gemv_piece_bytes(kBits);
  const uint8_t* codes = weight.codes + first_tile * tile_bytes;
  int to_tiles[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    // Tiles that are not there: the last one, never stored.
    to_tiles[i] =
        static_cast<int>((min(first_tile + i, weight.num_tiles - 1) - first_tile) * tile_bytes);
  }
  uint32_t words[kDepth][kTiles][Sizes::kWords];
  const auto load_vector = [&](int piece, int i, int vector, uint32_t* to) {
    if (piece >= weight.num_pieces) return;
    // Not known to the compiler, which would keep an address for each load.
    int to_tile = to_tiles[i];
    ptx::opaque(to_tile);
    const uint8_t* from = codes + int64_t{piece} * gemv_piece_bytes(kBits) + to_tile +
                          gemv_word_offset(kBits, 4 * vector, lane);
    if (vector < Sizes::kWords / 4) {
      ptx::ld_global<ptx::RelaxedGpuNoAllocate, 4>(from, to + 4 * vector);
    } else {
      ptx::ld_global<ptx::RelaxedGpuNoAllocate, 2>(from, to + 4 * vector);
    }
  };
  const bool is_grouped = weight.scale_dtype != DType::kF32;
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        load_vector(warp + d * kGemvWarps, i, v, words[d][i]);
      }
    }
    if (is_grouped) {
      group_words[warp].start(weight, first_tile, warp + d * kGemvWarps, d, lane);
    }
  }
  ptx::griddepcontrol_wait();
  uint4 x[kSteps][kRowTiles] = {};
  const uint8_t* x_rows[kRowTiles];
#pragma unroll
  for (int j = 0; j < kRowTiles; ++j) {
    const int row = 8 * j + lane / 4;
    x_rows[j] = args.x + (row < args.M ? row * args.x_row_bytes : 0) + lane % 4 * 16;
  }
  const auto load_inputs = [&](int piece, int step) {
    const int begin = (piece * kSteps + step) * 64;
    // Pieces that rows fill; of another one, and behind it, what is not there is zero.
    const bool is_whole = piece < weight.num_whole_pieces;
    const bool is_inside = is_whole || begin + lane % 4 * 16 < args.x_row_used_bytes;
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
      if (!is_inside) x[step][j] = {0, 0, 0, 0};
      ptx::ld_global_if(is_inside && 8 * j + lane / 4 < args.M, x_rows[j] + begin, &x[step][j]);
    }
  };
#pragma unroll
  for (int step = 0; step < kSteps; ++step) load_inputs(warp, step);
  GemvSums<Numbers, kTiles, kRowTiles> sums;
  GemvGroup groups[kTiles] = {};
  const int group_steps = kSteps / weight.groups_of_entry;
  int group = 0;
  for (int first = warp; first < weight.num_pieces; first += kGemvWarps * kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const int piece = first + d * kGemvWarps;
      if (piece >= weight.num_pieces) break;
      if (is_grouped) {
        group = 0;
        ptx::cp_async_wait_group<kDepth - 1>();
        __syncwarp();
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        constexpr uint32_t kOnes[4] = {Numbers::kOnes, Numbers::kOnes, Numbers::kOnes,
                                       Numbers::kOnes};
#pragma unroll
        for (int j = 0; j < kRowTiles; ++j) {
          Numbers::multiply(kOnes, x[step][j].x, x[step][j].y, sums.ones[j]);
          Numbers::multiply(kOnes, x[step][j].z, x[step][j].w, sums.ones[j]);
        }
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int part = 0; part < Decoder::kParts; ++part) {
            uint32_t a[8];
            Decoder::decode(words[d][i], step, part, a);
#pragma unroll
            for (int j = 0; j < kRowTiles; ++j) {
              Numbers::multiply(a, x[step][j].x, x[step][j].y, sums.codes[i][j]);
              Numbers::multiply(a + 4, x[step][j].z, x[step][j].w, sums.codes[i][j]);
            }
          }
        }
        load_inputs(piece + kGemvWarps, step);
        // What all steps have taken is read anew.
        if constexpr (kBits == 8) {
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            load_vector(piece + kGemvWarps * kDepth, i, step, words[d][i]);
          }
        }
        if (is_grouped && ((step + 1) & (group_steps - 1)) == 0) {
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            groups[i] = group_words[warp].get(weight, d, i, group, lane);
          }
          sums.template close<Decoder>(weight, groups);
          ++group;
        }
      }
      if constexpr (kBits != 8) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int v = 0; v < kVectors; ++v) {
            load_vector(piece + kGemvWarps * kDepth, i, v, words[d][i]);
          }
        }
      }
      if (is_grouped) {
        __syncwarp();
        group_words[warp].start(weight, first_tile, piece + kGemvWarps * kDepth, d, lane);
      }
    }
  }
  ptx::griddepcontrol_launch_dependents();
  if (!is_grouped) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int64_t tile = min(first_tile + i, weight.num_tiles - 1);
      if (weight.zeros != nullptr) groups[i] = load_group(weight, tile, 0, 0, lane);
    }
    sums.template close<Decoder>(weight, groups);
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        partial[warp][8 * j + lane % 4 * 2 + e % 2][16 * i + e / 2 * 8 + lane / 4] =
            sums.total[i][j][e];
      }
    }
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < Sizes::kOutputs * kRows; at += kGemvThreads) {
    const int m = at / Sizes::kOutputs, place = at % Sizes::kOutputs;
    const int64_t n = first_tile * kGemvTileOutputs + place;
    if (m >= args.M || n >= args.N) continue;
    float value = 0;
#pragma unroll
    for (int part = 0; part < kGemvWarps; ++part) value += partial[part][m][place];
    if (!is_grouped) value *= static_cast<const float*>(weight.scales)[n];
    if (args.x_scales != nullptr) value *= args.x_scales[m];
    if (args.bias != nullptr) value += args.bias[n];
    store_number(args.y, args.y_dtype, m * args.y_stride + n, value);
  }
}

template <class Numbers, int kBits, int kTiles>
void launch_gemv_tiles(const CudaContext& context, const GemvArguments& args) {
  const auto launch = [&](auto kernel) {
    const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(args.weight.num_tiles, kTiles));
    launch_kernel(context, "product of a few rows and codes",
                  {.grid = dim3(blocks), .block = dim3(kGemvThreads)}, kernel, args);
  };
  if constexpr (kTiles <= 2) {
    if (args.M > 8) return launch(gemv_kernel<Numbers, kBits, kTiles, 2>);
  }
  launch(gemv_kernel<Numbers, kBits, kTiles, 1>);
}

/// See gemv_arguments.h.
template <class Numbers, int kBits>
void launch_gemv(const CudaContext& context, const GemvPlan& plan, const GemvArguments& args) {
  // More rows leave no registers for more tiles, and no sum depends on how many there are.
  const int tiles = args.M > 8 ? std::min(plan.tiles, 2) : plan.tiles;
  switch (tiles) {
    case 1:
      return launch_gemv_tiles<Numbers, kBits, 1>(context, args);
    case 2:
      return launch_gemv_tiles<Numbers, kBits, 2>(context, args);
    case 4:
      if constexpr (kBits < 8) return launch_gemv_tiles<Numbers, kBits, 4>(context, args);
      [[fallthrough]];
    default:
      HALLEY_CHECK(false, kBits, plan.tiles);
  }
}

}  // namespace halley::cuda
