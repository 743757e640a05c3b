// The kernel of a product of one or two rows and a weight of 1 or 2 bits: inputs as bit planes
// (gemv_planes_inputs.cuh), which codes are multiplied by as they are.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemv/gemv_arguments.h"
#include "halley/cuda/gemv/gemv_group.cuh"
#include "halley/cuda/gemv/gemv_layout.h"
#include "halley/cuda/gemv/gemv_planes.h"
#include "halley/cuda/gemv/gemv_planes_inputs.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

/// sums = the bits set in both, of 16 outputs, 256 places and 8 columns.
__device__ __forceinline__ void count_bits(int32_t (&sums)[4], const uint32_t (&a)[4], uint2 b) {
  constexpr int32_t kZeros[4] = {};
  ptx::mma_sync<ptx::MmaB1AndPopc>(sums, a, b.x, b.y, kZeros);
}

/// A lane's inputs of a piece and row.
template <int kProducts>
struct PlaneColumns {
  uint2 b[kProducts];
  float unit = 0;  // of the lane's sums
  float ones = 0;  // the sum of the inputs, of one lane of a sum's row

  __device__ __forceinline__ void load(const uint8_t* planes, int lane, float lane_unit) {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      b[i] = reinterpret_cast<const uint2*>(planes)[i * 32 + lane];
    }
    const float2 numbers = *reinterpret_cast<const float2*>(planes + kProducts * 256);
    unit = numbers.x * lane_unit;
    ones = lane % 4 == 0 ? numbers.y : 0;
  }
};

/// The sums of a tile and piece: of output g (row 0) and g + 8. As f32 they are
/// kDigitSumBaseNumber more.
template <GemvInputs kInputs, int kBits>
struct PlaneSums {
  static constexpr int kProducts = gemv_plane_products(kInputs);
  static constexpr bool kIsS8 = kInputs == GemvInputs::kS8;
  /// Nine planes would take two products as well.
  static constexpr bool kIsS8Pair = kIsS8 && kBits == 2;

  int32_t of[kProducts][4];
  int32_t upper[kIsS8Pair ? 4 : 1];

  __device__ __forceinline__ void multiply(const uint32_t (&words)[2 * kBits],
                                           const PlaneColumns<kProducts>& columns) {
    if constexpr (kIsS8Pair) {
      const uint2 b = columns.b[0];
      count_bits(of[0], words, b);
      count_bits(upper, words, uint2{b.x << 1, b.y << 1});
    } else {
      uint32_t a[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (kBits == 2) {
          constexpr uint32_t kMask = 0x33333333u;
          const uint32_t u = words[2 * half], v = words[2 * half + 1];
          a[2 * half] = select_bits(kMask, u, v << 2);
          a[2 * half + 1] = select_bits(kMask, u >> 2, v);
        } else {
          a[2 * half] = words[half];
          a[2 * half + 1] = words[half] >> (kIsS8 ? 4 : 1);
        }
      }
#pragma unroll
      for (int i = 0; i < kProducts; ++i) {
        count_bits(of[i], a, columns.b[i]);
      }
    }
  }

  /// `last`: what the last plane of the lane counts.
  __device__ __forceinline__ float total(int row, int last) const {
    int32_t highest = of[kProducts - 1][2 * row + 1];
    if constexpr (kIsS8Pair) highest += upper[2 * row + 1] << 1;
    int32_t sum = kDigitSumBase + highest * last;
    sum += of[0][2 * row];
    if constexpr (kIsS8Pair) sum += upper[2 * row] << 1;
    if constexpr (!kIsS8) {
      sum += of[0][2 * row + 1] << 1;
      sum += of[1][2 * row] << 2;
      sum += of[1][2 * row + 1] << 3;
      sum += of[2][2 * row] << 4;
    }
    return __int_as_float(sum);
  }
};

/// Stages that are copied before the inputs: behind more of them these would come late.
inline constexpr int kBeforeInputs = 2;

/// A warp's ring: a stage has a piece of some tiles, [tile][piece bytes], and their scales and
/// zeros, [2][tile][8] words.
template <int kBits, int kTiles>
struct GemvPlaneRing {
  static constexpr int kPieceBytes = gemv_piece_bytes(kBits);
  static constexpr int kTilesOfCopy = 512 / kPieceBytes;  // a warp copies 512 bytes at once

  const GemvWeightArguments& weight;
  const GemvPlanePlan& plan;
  uint8_t* base;
  int warp, lane;
  int tile_end;
  int tile;       // of what is copied next: the first
  int tiles = 0;  // how many, less the lane's first one
  int piece = 0;
  int stage = 0;                    // to where
  const uint8_t* codes = nullptr;   // what the lane copies of the first tiles
  const uint8_t* groups = nullptr;  // and of scales or zeros: of piece 0; or none

  __device__ __forceinline__ uint8_t* bytes(int index) const {
    return base + index * plan.stage_bytes;
  }

  /// At the warp's first piece of some tiles.
  __device__ __forceinline__ void aim(int at) {
    tile = at;
    piece = warp;
    const int first = lane * 16 / kPieceBytes;
    tiles = min(plan.tiles, tile_end - tile) - first;
    codes = weight.codes + (int64_t{tile + first} * weight.num_pieces + piece) * kPieceBytes +
            lane * 16 % kPieceBytes;
    // Two lanes a tile for scales, and two for zeros.
    const int i = lane / 2 % 8;
    const void* words = lane / 16 == 0 ? weight.scales : weight.zeros;
    const bool is_there = weight.scale_dtype != DType::kF32 && words != nullptr &&
                          i < min(plan.tiles, tile_end - tile);
    groups = is_there ? static_cast<const uint8_t*>(words) +
                            int64_t{tile + i} * weight.num_entries * 32 + lane % 2 * 16
                      : nullptr;
  }

  __device__ __forceinline__ void copy_next() {
    const uint32_t to = ptx::cvta_to_shared(bytes(stage)) + static_cast<uint32_t>(lane * 16);
    const int64_t step = int64_t{weight.num_pieces} * (kTilesOfCopy * kPieceBytes);
    const uint8_t* from = codes;
#pragma unroll
    for (int i = 0; i < kTiles; i += kTilesOfCopy) {
      if (i < tiles)
        ptx::cp_async_cg<ptx::L2Prefetch128B>(to + static_cast<uint32_t>(i * kPieceBytes), from);
      from += step;
    }
    if (groups != nullptr) {
      const int at = lane / 16 * plan.tiles + lane / 2 % 8;
      ptx::cp_async_cg<ptx::L2Prefetch128B>(
          ptx::cvta_to_shared(bytes(stage)) +
              static_cast<uint32_t>(plan.tiles * kPieceBytes + at * 32 + lane % 2 * 16),
          groups + (piece >> weight.entry_shift) * 32);
    }
    ptx::cp_async_commit_group();
    stage = stage + 1 == plan.stages ? 0 : stage + 1;
    piece += kGemvPlaneWarps;
    codes += kGemvPlaneWarps * kPieceBytes;
    if (piece >= weight.num_pieces) aim(min(tile + plan.tiles, tile_end));
  }

  /// The oldest stage, for all lanes. Inputs are under way beside the stages at the beginning.
  __device__ __forceinline__ void wait() const {
    if (plan.stages == kGemvPlaneStages) {
      ptx::cp_async_wait_group<kGemvPlaneStages - 1>();
    } else {
      ptx::cp_async_wait_group<kGemvPlaneStages - 2>();
    }
    __syncwarp();
  }
  /// The inputs, behind kBeforeInputs stages.
  __device__ __forceinline__ void wait_for_inputs() const {
    if (plan.stages == kGemvPlaneStages) {
      ptx::cp_async_wait_group<kGemvPlaneStages - kBeforeInputs>();
    } else {
      ptx::cp_async_wait_group<kGemvPlaneStages - 1 - kBeforeInputs>();
    }
    __syncwarp();
  }
};

/// How scales and zeros of a weight lie.
enum class GemvScaleLayout : uint8_t {
  kOutputs,  // one of each output, f32, which are applied at the end
  kF16,      // of groups, one zero for all
  kAny,      // of groups
};

/// Sums of a warp.
template <class Type, int kBits, int kRows, GemvScaleLayout kScales>
struct GemvPlanes {
  static constexpr int kTiles = gemv_plane_tiles(kRows);
  static constexpr int kPieceBytes = gemv_piece_bytes(kBits), kWords = gemv_lane_words(kBits);
  static constexpr bool kIsGrouped = kScales != GemvScaleLayout::kOutputs;
  using Sums = PlaneSums<Type::kInputs, kBits>;
  using Columns = PlaneColumns<Sums::kProducts>;
  using Inputs = InputPlanes<Type, kBits, kRows>;
  /// What is added to a lane's sums, in two parts: one number does not hold them where units are 1.
  static constexpr bool kHasZeroLast = kScales == GemvScaleLayout::kAny || Inputs::kIsS8;

  const GemvWeightArguments& weight;
  const GemvPlanePlan& plan;
  int lane;
  int last;  // of PlaneSums::total()
  float totals[kTiles][kRows][2] = {};
  float ones[kRows] = {};

  /// A tile of a stage.
  __device__ __forceinline__ void multiply_tile(const uint8_t* bytes, int i,
                                                const Columns (&columns)[kRows],
                                                const float (&offsets)[kRows]) {
    uint32_t words[kWords];
    const uint8_t* codes = bytes + i * kPieceBytes + gemv_word_offset(kBits, 0, lane);
    if constexpr (kWords == 4) {
      const auto four = *reinterpret_cast<const uint4*>(codes);
      words[0] = four.x;
      words[1] = four.y;
      words[2] = four.z;
      words[3] = four.w;
    } else {
      const auto two = *reinterpret_cast<const uint2*>(codes);
      words[0] = two.x;
      words[1] = two.y;
    }
    float scales[2] = {1, 1}, zeros[2] = {weight.zero, weight.zero};
    if constexpr (kIsGrouped) {
      const auto* of_groups =
          reinterpret_cast<const uint32_t*>(bytes + plan.tiles * kPieceBytes) + lane / 4;
      const uint32_t both = of_groups[i * 8];
      const bool is_bf16 = kScales == GemvScaleLayout::kAny && weight.scale_dtype == DType::kBf16;
#pragma unroll
      for (int e = 0; e < 2; ++e) scales[e] = is_bf16 ? bf16_half(both, e) : f16_half(both, e);
      if (kScales == GemvScaleLayout::kAny && weight.zeros != nullptr) {
        const uint32_t two = of_groups[(plan.tiles + i) * 8];
#pragma unroll
        for (int e = 0; e < 2; ++e) zeros[e] = f16_half(two, e);
      }
    }
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      Sums sums;
      sums.multiply(words, columns[m]);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float sum = fmaf(sums.total(e, last), columns[m].unit, offsets[m]);
        if constexpr (kIsGrouped && kHasZeroLast) sum = fmaf(-zeros[e], columns[m].ones, sum);
        totals[i][m][e] =
            kIsGrouped ? fmaf(scales[e], sum, totals[i][m][e]) : totals[i][m][e] + sum;
      }
    }
  }

  /// A stage.
  __device__ __forceinline__ void multiply(const uint8_t* bytes, int tiles,
                                           const Columns (&columns)[kRows]) {
    // What is taken off a lane's sums: their base, and the zero if it is one for all.
    float offsets[kRows];
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      offsets[m] = -kDigitSumBaseNumber * columns[m].unit;
      if constexpr (kIsGrouped && !kHasZeroLast) {
        offsets[m] = fmaf(-weight.zero, columns[m].ones, offsets[m]);
      }
      if constexpr (!kIsGrouped) ones[m] += columns[m].ones;
    }
    // Two at a time without a branch between.
#pragma unroll
    for (int i = 0; i < kTiles; i += 2) {
      if (i + 1 < tiles) {
        multiply_tile(bytes, i, columns, offsets);
        multiply_tile(bytes, i + 1, columns, offsets);
      } else if (i < tiles) {
        multiply_tile(bytes, i, columns, offsets);
      }
    }
  }

  /// Of one row: to [output] of the warp, from the first tile's on. Sums of two tiles and of the
  /// outputs g and g + 8 become one in each lane. What stands behind the last tile nobody reads.
  __device__ __forceinline__ void store_pair(int i, int m, float* sums) const {
    const bool is_upper = lane % 2 != 0, is_second = lane / 2 % 2 != 0;
    float of_tiles[2];
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const float(&both)[2] = totals[i + t][m];
      of_tiles[t] =
          (is_upper ? both[1] : both[0]) + __shfl_xor_sync(~0u, is_upper ? both[0] : both[1], 1);
    }
    const float sum = (is_second ? of_tiles[1] : of_tiles[0]) +
                      __shfl_xor_sync(~0u, is_second ? of_tiles[0] : of_tiles[1], 2);
    sums[(i + lane / 2 % 2) * kGemvTileOutputs + lane % 2 * 8 + lane / 4] = sum;
  }

  /// The sums of some tiles, to [row][sum_pitch] of the warp.
  __device__ __forceinline__ void store(float* sums, int first_tile, int tiles) {
#pragma unroll
    for (int i = 0; i < kTiles; i += 2) {
      if (i >= tiles) continue;
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        if (kIsGrouped || i + t >= tiles) continue;
        const GemvGroup group = load_group(weight, first_tile + i + t, 0, 0, lane);
#pragma unroll
        for (int m = 0; m < kRows; ++m) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            totals[i + t][m][e] = fmaf(-group_zero(weight, group, e), ones[m], totals[i + t][m][e]);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
        store_pair(i, m, sums + m * plan.sum_pitch);
#pragma unroll
        for (int t = 0; t < 4; ++t) totals[i + t / 2][m][t % 2] = 0;
      }
    }
#pragma unroll
    for (int m = 0; m < kRows; ++m) ones[m] = 0;
  }
};

/// The warps' sums in their order, to y: of the outputs of tiles [begin, end).
template <int kRows, GemvScaleLayout kScales>
__device__ __forceinline__ void write_plane_sums(const GemvArguments& args,
                                                 const GemvPlanePlan& plan, const float* sums,
                                                 int begin, int end) {
  const int outputs = (end - begin) * kGemvTileOutputs;
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < outputs * kRows; at += kGemvPlaneWarps * 32) {
    const int m = kRows == 1 ? 0 : at / outputs, place = kRows == 1 ? at : at % outputs;
    const int64_t n = int64_t{begin} * kGemvTileOutputs + place;
    if (n >= args.N) continue;
    float value = 0;
#pragma unroll
    for (int part = 0; part < kGemvPlaneWarps; ++part) {
      value += sums[(part * kRows + m) * plan.sum_pitch + place];
    }
    if constexpr (kScales == GemvScaleLayout::kOutputs) {
      value *= static_cast<const float*>(args.weight.scales)[n];
    }
    if (args.x_scales != nullptr) value *= args.x_scales[m];
    if (args.bias != nullptr) value += args.bias[n];
    store_number(args.y, args.y_dtype, m * args.y_stride + n, value);
  }
}

/// Blocks have consecutive tiles and go through them some at a time; warp w has pieces w, w + 16,
/// ... of all of them.
template <class Type, int kBits, int kRows, GemvScaleLayout kScales>
__device__ __forceinline__ void multiply_planes(const GemvArguments& args,
                                                const GemvPlanePlan& plan, uint8_t* shared) {
  using Planes = GemvPlanes<Type, kBits, kRows, kScales>;
  const GemvWeightArguments& weight = args.weight;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t block = blockIdx.x, num_blocks = gridDim.x;
  const auto tile_begin = static_cast<int>(weight.num_tiles * block / num_blocks);
  const auto tile_end = static_cast<int>(weight.num_tiles * (block + 1) / num_blocks);
  GemvPlaneRing<kBits, Planes::kTiles> ring = {
      .weight = weight,
      .plan = plan,
      .base = shared + warp * plan.stages * plan.stage_bytes,
      .warp = warp,
      .lane = lane,
      .tile_end = warp < weight.num_pieces ? tile_end : tile_begin,
      .tile = tile_begin};
  ring.aim(tile_begin);
  ptx::griddepcontrol_launch_dependents();  // whose blocks come as soon as these here end
#pragma unroll 1
  for (int i = 0; i < kBeforeInputs; ++i) ring.copy_next();
  ptx::griddepcontrol_wait();
  const int own_pieces = (weight.num_pieces - warp + kGemvPlaneWarps - 1) / kGemvPlaneWarps;
  const typename Planes::Inputs inputs = {
      .source = {args.x, args.x_row_bytes, args.x_row_used_bytes, weight.num_pieces},
      .base = shared + plan.planes + warp * plan.kept * kRows * Planes::Inputs::kBytes,
      .copies = shared + plan.copies + warp * plan.warp_copies,
      .kept = plan.kept,
      .num_own = own_pieces,
      .warp = warp,
      .lane = lane};
  inputs.fetch();
#pragma unroll 1
  for (int i = kBeforeInputs; i < plan.stages; ++i) ring.copy_next();
  const int highest = 1 << (2 * Planes::Sums::kProducts - 1);
  const float lane_unit = power_of_2(2 * Planes::Sums::kProducts * (lane % 4));
  Planes planes = {
      .weight = weight, .plan = plan, .lane = lane, .last = lane % 4 == 3 ? -highest : highest};
  auto* const all_sums = reinterpret_cast<float*>(shared + plan.sums);
  float* const warp_sums = all_sums + warp * kRows * plan.sum_pitch;
  int stage = 0;
#pragma unroll 1
  for (int span = tile_begin; span < tile_end; span += plan.span) {
    const int span_end = min(span + plan.span, tile_end);
#pragma unroll 1
    for (int tile = span; tile < span_end; tile += plan.tiles) {
      const int tiles = min(plan.tiles, span_end - tile);
#pragma unroll 1
      for (int own = 0; own < own_pieces; ++own) {
        ring.wait();
        if (own % kGemvPlaneBatch == 0 && (tile == tile_begin || !inputs.keeps_all())) {
          if (tile == tile_begin && own == 0) ring.wait_for_inputs();
          inputs.convert(own);
        }
        typename Planes::Columns columns[kRows];
#pragma unroll
        for (int m = 0; m < kRows; ++m) columns[m].load(inputs.planes(own, m), lane, lane_unit);
        planes.multiply(ring.bytes(stage), tiles, columns);
        __syncwarp();
        ring.copy_next();
        stage = stage + 1 == plan.stages ? 0 : stage + 1;
      }
      planes.store(warp_sums + (tile - span) * kGemvTileOutputs, tile, tiles);
    }
    __syncthreads();
    write_plane_sums<kRows, kScales>(args, plan, all_sums, span, span_end);
    if (span_end < tile_end) __syncthreads();
  }
}

template <class Type, int kBits, int kRows>
__global__ void __launch_bounds__(kGemvPlaneWarps * 32, 1)
    gemv_planes_kernel(const __grid_constant__ GemvArguments args,
                       const __grid_constant__ GemvPlanePlan plan) {
  extern __shared__ uint4 shared_memory[];
  auto* const shared = reinterpret_cast<uint8_t*>(shared_memory);
  const GemvWeightArguments& weight = args.weight;
  if (weight.scale_dtype == DType::kF32) {
    multiply_planes<Type, kBits, kRows, GemvScaleLayout::kOutputs>(args, plan, shared);
  } else if (weight.scale_dtype == DType::kF16 && weight.zeros == nullptr) {
    multiply_planes<Type, kBits, kRows, GemvScaleLayout::kF16>(args, plan, shared);
  } else {
    multiply_planes<Type, kBits, kRows, GemvScaleLayout::kAny>(args, plan, shared);
  }
}

template <class Type, int kBits, int kRows>
void launch_gemv_planes_rows(const CudaContext& context, const GemvPlanePlan& plan,
                             const GemvArguments& args) {
  const auto kernel = gemv_planes_kernel<Type, kBits, kRows>;
  launch_kernel(context, "product of one or two rows and bits",
                {.grid = dim3(static_cast<unsigned>(plan.blocks)),
                 .block = dim3(kGemvPlaneWarps * 32),
                 .shared_bytes = static_cast<size_t>(plan.num_bytes)},
                kernel, args, plan);
}

/// See gemv_arguments.h.
template <class Type, int kBits>
void launch_gemv_planes(const CudaContext& context, const GemvPlanePlan& plan,
                        const GemvArguments& args) {
  if (args.M == 1) return launch_gemv_planes_rows<Type, kBits, 1>(context, plan, args);
  launch_gemv_planes_rows<Type, kBits, 2>(context, plan, args);
}

}  // namespace halley::cuda
