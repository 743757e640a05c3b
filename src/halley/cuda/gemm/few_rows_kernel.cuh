// The kernel of products of a few rows, and its launch for one type of codes or numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/few_rows_launch.h"
#include "halley/cuda/gemm/few_rows_place.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemm/row_scales.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/early_launch.cuh"

namespace halley::cuda {

/// 16 bytes of weights, which are read once; zero where there are none.
template <bool kIsEarly>
__device__ inline uint4 load_weights(const uint8_t* from, bool is_there) {
  uint4 words;
  if (kIsEarly) {
    // The assembler moves weaker loads behind the wait for earlier kernels.
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.s32 p, %5, 0;\n"
        "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@p ld.relaxed.gpu.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n"
        "}\n"
        : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)
        : "l"(from), "r"(static_cast<int>(is_there))
        : "memory");
    return words;
  }
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.s32 p, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@p ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)
      : "l"(from), "r"(static_cast<int>(is_there)));
  return words;
}

/// The same of inputs, which other blocks read too.
__device__ inline uint4 load_inputs(const uint8_t* from, bool is_there) {
  uint4 words;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.s32 p, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)
      : "l"(from), "r"(static_cast<int>(is_there))
      : "memory");
  return words;
}

/// 16 outputs by 8 rows of x, over 32 bytes of inputs: half of what a lane has of 64.
struct MmaWords {
  uint32_t w[4];  // outputs g and g + 8 of the first half, then of the second
  uint32_t x[2];
};

#define HALLEY_MMA(SHAPE, TYPES, CONSTRAINT)                                                 \
  asm volatile(                                                                              \
      "mma.sync.aligned." SHAPE ".row.col." TYPES                                            \
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"                   \
      : CONSTRAINT(sums[0]), CONSTRAINT(sums[1]), CONSTRAINT(sums[2]), CONSTRAINT(sums[3])   \
      : "r"(words.w[0]), "r"(words.w[1]), "r"(words.w[2]), "r"(words.w[3]), "r"(words.x[0]), \
        "r"(words.x[1]))

struct F16Numbers {
  using Sum = float;
  static constexpr int kTilesAhead = 8;
  __device__ static void multiply(const MmaWords& words, float* sums) {
    HALLEY_MMA("m16n8k16", "f32.f16.f16.f32", "+f");
  }
};
struct Bf16Numbers {
  using Sum = float;
  static constexpr int kTilesAhead = 8;
  __device__ static void multiply(const MmaWords& words, float* sums) {
    HALLEY_MMA("m16n8k16", "f32.bf16.bf16.f32", "+f");
  }
};
struct E4m3Codes {
  using Sum = float;
  // The compiler makes f16 of the codes, for which it needs registers.
  static constexpr int kTilesAhead = 4;
  __device__ static void multiply(const MmaWords& words, float* sums) {
    HALLEY_MMA("m16n8k32", "f32.e4m3.e4m3.f32", "+f");
  }
};
struct S8Codes {
  using Sum = int;
  static constexpr int kTilesAhead = 8;
  __device__ static void multiply(const MmaWords& words, int* sums) {
    HALLEY_MMA("m16n8k32", "s32.s8.s8.s32", "+r");
  }
};
#undef HALLEY_MMA

/// Registers of one lane, and what they hold ahead.
template <typename Numbers, int kOutputTiles>
struct FewRowsTile {
  /// Units of 64 bytes of inputs that are on their way: 1 KiB of weights a warp for each tile.
  static constexpr int kUnits = Numbers::kTilesAhead / kOutputTiles;
  static constexpr int kInputUnits = std::min(kUnits, 4);
  static constexpr int kOutputs = 16 * kOutputTiles;
  static constexpr int kRows = 8;
  /// Of partial sums: a gap, so that lanes that store neighbouring rows do so in other banks.
  static constexpr int kOutputStride = kOutputs + 4;
};

/// A block has kOutputs outputs of all rows; its warps share the inputs as few_rows_place.h says.
template <typename Numbers, int kOutputTiles>
__global__ void __launch_bounds__(kFewRowsThreads, 2)
    few_rows_kernel(const __grid_constant__ FewRowsArguments args) {
  using Tile = FewRowsTile<Numbers, kOutputTiles>;
  using Sum = typename Numbers::Sum;
  __shared__ Sum partial[kFewRowsWarps][Tile::kRows][Tile::kOutputStride];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first_output = int64_t{blockIdx.x} * Tile::kOutputs;
  // Outputs that are not there: those of another row, never stored.
  const int64_t last_output = args.N - 1;
  const int64_t output = min(first_output + few_rows_fragment_row(0, lane), last_output);
  const uint8_t* w_row = args.w + output * args.w_row_bytes;
  int to_rows[2 * kOutputTiles];  // bytes
#pragma unroll
  for (int i = 0; i < 2 * kOutputTiles; ++i) {
    const int64_t other = min(output + 8 * i, last_output);
    to_rows[i] = static_cast<int>((other - output) * args.w_row_bytes);
  }
  const int num_units = few_rows_units(args.row_bytes, warp);
  uint4 w[Tile::kUnits][2 * kOutputTiles];
  const auto load_unit = [&](auto is_early, int unit, uint4* to) {
    const int begin = few_rows_begin(unit, warp, lane);
#pragma unroll
    for (int i = 0; i < 2 * kOutputTiles; ++i) {
      int to_row = to_rows[i];
      // Not known to the compiler, which would keep an address for each load.
      asm volatile("" : "+r"(to_row));
      to[i] =
          load_weights<decltype(is_early)::value>(w_row + begin + to_row, begin < args.row_bytes);
    }
  };
#pragma unroll
  for (int unit = 0; unit < Tile::kUnits; ++unit) load_unit(std::true_type(), unit, w[unit]);
  wait_for_earlier_kernels();
  uint4 x[Tile::kInputUnits];
  const int row = few_rows_fragment_row(0, lane);
  const uint8_t* x_row = args.x + (row < args.M ? row * args.x_row_bytes : 0);
  const auto load_input_unit = [&](int unit, uint4* to) {
    const int begin = few_rows_begin(unit, warp, lane);
    *to = load_inputs(x_row + begin, begin < args.row_bytes && row < args.M);
  };
#pragma unroll
  for (int unit = 0; unit < Tile::kInputUnits; ++unit) load_input_unit(unit, &x[unit]);
  Sum sums[kOutputTiles][4] = {};
  // Units behind num_units are zeros.
  for (int first = 0; first < num_units; first += Tile::kUnits) {
#pragma unroll
    for (int unit = 0; unit < Tile::kUnits; ++unit) {
      const uint4 inputs = x[unit % Tile::kInputUnits];
#pragma unroll
      for (int i = 0; i < kOutputTiles; ++i) {
        const uint4 upper = w[unit][2 * i], lower = w[unit][2 * i + 1];
        Numbers::multiply({{upper.x, lower.x, upper.y, lower.y}, {inputs.x, inputs.y}}, sums[i]);
        Numbers::multiply({{upper.z, lower.z, upper.w, lower.w}, {inputs.z, inputs.w}}, sums[i]);
      }
      load_unit(std::false_type(), first + unit + Tile::kUnits, w[unit]);
      load_input_unit(first + unit + Tile::kInputUnits, &x[unit % Tile::kInputUnits]);
    }
  }
  let_next_kernel_start();
#pragma unroll
  for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
    for (int element = 0; element < 4; ++element) {
      partial[warp][few_rows_sum_row(element, lane)][16 * i + few_rows_sum_output(element, lane)] =
          sums[i][element];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kOutputs * Tile::kRows;
       i += kFewRowsThreads) {
    const int m = i / Tile::kOutputs, place = i % Tile::kOutputs;
    const int64_t n = first_output + place;
    if (m >= args.M || n >= args.N) continue;
    Sum sum = 0;
#pragma unroll
    for (int part = 0; part < kFewRowsWarps; ++part) sum += partial[part][m][place];
    const float value = scaled_sum(args.scales, args.bias, static_cast<float>(sum), m, n);
    store_number(args.y, args.y_dtype, m * args.y_stride + n, value);
  }
}

/// See few_rows_launch.h.
template <typename Numbers>
void launch_few_rows_of(const CudaContext& context, const FewRowsArguments& args) {
  const auto launch = [&](auto kernel, int64_t outputs_of_block) {
    launch_early(context, "product of a few rows",
                 {.grid = dim3(static_cast<unsigned>(ceil_div(args.N, outputs_of_block))),
                  .block = dim3(kFewRowsThreads)},
                 kernel, args);
  };
  // With 32 outputs a block x is read half as often, and all blocks may run at once; with 16 more
  // of them share the bandwidth.
  const bool has_many = args.N >= int64_t{40} * context.device.num_multiprocessors;
  if (has_many) return launch(few_rows_kernel<Numbers, 2>, 32);
  launch(few_rows_kernel<Numbers, 1>, 16);
}

}  // namespace halley::cuda
