// The W4Ax product of at most eight tokens: warps read codes straight from memory, multiply them by
// mma.sync and share the inputs of every output.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/hopper_instructions.cuh"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/mixed_gemm/narrow_mma.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_codes.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_narrow.h"

namespace halley::cuda {

/// What a warp multiplies at a time: a block of inputs and some rows of 16 outputs.
struct W4axNarrowItem {
  int row = 0;
  int chunk = 0;

  __device__ __forceinline__ void advance(int warp, int num_chunks) {
    chunk += kW4axNarrowWarps;
    if (chunk >= num_chunks) {
      chunk = warp;
      row += kW4axNarrowRows;
    }
  }
};

struct W4axNarrowThread {
  int warp = 0, lane = 0;
  __device__ int row() const { return lane / 4; }          // g of fragments
  __device__ int column_pair() const { return lane % 4; }  // c of fragments
};

/// Where the codes of 16 outputs and a block of inputs begin: 512 bytes, and as many
/// kW4axHalfBytes further.
__device__ __forceinline__ const uint8_t* narrow_codes(const W4axNarrowArguments& args, int row,
                                                       int chunk) {
  constexpr int kPanelRows = kTileOutputs / 16;
  const int64_t index = int64_t{row / kPanelRows} * args.num_chunks + chunk;
  const int in_panel = row % kPanelRows;
  return args.codes + index * kW4axChunkBytes + in_panel / 4 * kW4axStripBytes + in_panel % 4 * 512;
}

/// To the L2 cache, a line a lane: the item that is `distance` ahead, for which the warp then waits
/// less.
__device__ __forceinline__ void prefetch_item(const W4axNarrowArguments& args,
                                              const W4axNarrowThread& self, W4axNarrowItem item,
                                              int distance, int row_end) {
  for (int i = 0; i < distance; ++i) item.advance(self.warp, args.num_chunks);
  const int lane = self.lane, row = item.row + lane / 8;
  if (lane >= 8 * kW4axNarrowRows || row >= row_end) return;
  const uint8_t* line =
      narrow_codes(args, row, item.chunk) + lane % 8 / 4 * kW4axHalfBytes + lane % 4 * 128;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

/// Of the weight, for all rows.
struct W4axNarrowWeight {
  uint4 codes[kW4axNarrowRows][2];
  float scales[kW4axNarrowRows][2];

  __device__ __forceinline__ void load(const W4axNarrowArguments& args,
                                       const W4axNarrowThread& self, const W4axNarrowItem& item,
                                       int row_end) {
#pragma unroll
    for (int i = 0; i < kW4axNarrowRows; ++i) {
      const int row = min(item.row + i, row_end - 1);  // nobody reads the sums of another
      const auto* from =
          reinterpret_cast<const uint4*>(narrow_codes(args, row, item.chunk)) + self.lane;
      codes[i][0] = __ldcs(from);
      codes[i][1] = __ldcs(from + kW4axHalfBytes / 16);
      const float* scale = args.w_scales + item.chunk * args.w_scales_pitch + row * 16 + self.row();
      scales[i][0] = scale[0];
      scales[i][1] = scale[8];
    }
  }
};

/// Of the tokens: operand B of a block's steps.
struct W4axNarrowInputs {
  uint32_t x[kW4axSteps][2];
  float scales[2];

  /// Inputs behind K are zero.
  static __device__ __forceinline__ uint32_t load_four(const uint8_t* row, int k, int K) {
    if (k + 4 <= K) return *reinterpret_cast<const uint32_t*>(row + k);
    uint32_t four = 0;
#pragma unroll 1
    for (int i = 0; k + i < K; ++i) four |= uint32_t{row[k + i]} << (8 * i);
    return four;
  }

  __device__ __forceinline__ void load(const W4axNarrowArguments& args,
                                       const W4axNarrowThread& self, int chunk) {
    // Tokens that do not exist give sums that nobody reads.
    const uint8_t* row = args.x + min(self.row(), args.M - 1) * args.x_stride;
    const int begin = chunk * kW4axInputs + 4 * self.column_pair();
#pragma unroll
    for (int step = 0; step < kW4axSteps; ++step) {
      x[step][0] = load_four(row, begin + step * 32, args.K);
      x[step][1] = load_four(row, begin + step * 32 + 16, args.K);
    }
    const auto* scale = reinterpret_cast<const float2*>(
        args.x_scales + chunk * args.x_scales_pitch + 2 * self.column_pair());
    scales[0] = scale->x;
    scales[1] = scale->y;
  }
};

/// sums += the block's sums, scaled: as W4axConsumer.
__device__ __forceinline__ void add_narrow(const W4axNarrowWeight& weight,
                                           const W4axNarrowInputs& inputs,
                                           float (&sums)[kW4axNarrowRows][4]) {
#pragma unroll
  for (int i = 0; i < kW4axNarrowRows; ++i) {
    int32_t of_block[4] = {};
#pragma unroll
    for (int step = 0; step < kW4axSteps; ++step) {
      const uint4& codes = weight.codes[i][step / 2];
      uint32_t a[4];
      W4axHighHalves::decode(a, step % 2 == 0 ? codes.x : codes.z,
                             step % 2 == 0 ? codes.y : codes.w);
      multiply_narrow_s8(of_block, a, inputs.x[step][0], inputs.x[step][1]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float scaled =
          static_cast<float>(of_block[e]) * (weight.scales[i][e / 2] * W4axHighHalves::kUnit);
      sums[i][e] = fmaf(scaled, inputs.scales[e % 2], sums[i][e]);
    }
  }
}

/// A warp's sums of an item's rows, to [warp][row of the pass][token][output].
__device__ __forceinline__ void keep_sums(const W4axNarrowArguments& args,
                                          const W4axNarrowThread& self, float* kept, int row,
                                          int num_rows, float (&sums)[kW4axNarrowRows][4]) {
#pragma unroll
  for (int i = 0; i < kW4axNarrowRows; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = 2 * self.column_pair() + e % 2;
      if (row + i < num_rows && token < args.M) {
        kept[((self.warp * num_rows + row + i) * args.M + token) * 16 + self.row() + e / 2 * 8] =
            sums[i][e];
      }
      sums[i][e] = 0;
    }
  }
}

/// Rows [begin, begin + num_rows) of 16 outputs: the warps' sums in their order.
__device__ __forceinline__ void write_narrow(const W4axNarrowArguments& args, const float* kept,
                                             int begin, int num_rows) {
  const int num_sums = num_rows * args.M * 16;
  const int num_warps = min(kW4axNarrowWarps, args.num_chunks);
  for (int i = static_cast<int>(threadIdx.x); i < num_sums; i += kW4axNarrowWarps * 32) {
    const int token = i / 16 % args.M, n = (begin + i / 16 / args.M) * 16 + i % 16;
    if (n >= args.N) continue;
    float sum = 0;
#pragma unroll 8
    for (int warp = 0; warp < num_warps; ++warp) sum += kept[warp * num_sums + i];
    if (args.bias != nullptr) sum += args.bias[n];
    store_number(args.y, args.y_dtype, token * args.y_stride + n, sum);
  }
}

/// Blocks have consecutive rows of 16 outputs; warps take blocks of inputs in turn.
__global__ void __launch_bounds__(kW4axNarrowWarps * 32, 1)
    w4ax_narrow_kernel(const __grid_constant__ W4axNarrowArguments args) {
  extern __shared__ float kept[];
  const int thread = static_cast<int>(threadIdx.x);
  const W4axNarrowThread self = {thread / 32, thread % 32};
  const int block = static_cast<int>(blockIdx.x), num_blocks = static_cast<int>(gridDim.x);
  const int end = tile_part_begin(args.num_rows, num_blocks, block + 1);
  int begin = tile_part_begin(args.num_rows, num_blocks, block);
  const bool has_chunks = self.warp < args.num_chunks;
  W4axNarrowItem item = {begin, self.warp};
  W4axNarrowWeight weight;
  if (has_chunks) {
    // Weights are constant: these do not wait for the kernel ahead.
    weight.load(args, self, item, end);
#pragma unroll
    for (int i = 1; i < kW4axNarrowAhead; ++i) prefetch_item(args, self, item, i, end);
  }
  wait_for_previous_kernel();
  bool is_loaded = true;
  for (; begin < end; begin += args.pass_rows) {
    const int num_rows = min(args.pass_rows, end - begin);
    float sums[kW4axNarrowRows][4] = {};
    while (has_chunks && item.row < begin + num_rows) {
      if (!is_loaded) weight.load(args, self, item, end);
      is_loaded = false;
      W4axNarrowInputs inputs;
      inputs.load(args, self, item.chunk);
      prefetch_item(args, self, item, kW4axNarrowAhead, end);
      add_narrow(weight, inputs, sums);
      const int row = item.row;
      item.advance(self.warp, args.num_chunks);
      if (item.row != row) keep_sums(args, self, kept, row - begin, num_rows, sums);
    }
    if (begin + num_rows >= end) start_next_kernel();
    __syncthreads();
    write_narrow(args, kept, begin, num_rows);
    if (begin + num_rows < end) __syncthreads();  // they have been read
  }
}

}  // namespace halley::cuda
