// The W4Ax product of at most eight tokens: every warp copies what it needs to its own part of
// shared memory, far ahead, and multiplies it by mma.sync; as cuda/mixed_gemm/narrow_kernel.cuh,
// but that every block of inputs is scaled.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/mixed_gemm/narrow_ring.cuh"
#include "halley/cuda/mixed_gemm/narrow_stage.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_narrow.h"

namespace halley::cuda {

/// A warp's ring of codes and inputs, and the scales that come with the inputs of a stage.
struct W4axNarrowRing {
  const W4axNarrowArguments& args;
  NarrowRing<MixedKind::kU4S8, 1, true> ring;

  /// Of `rows` rows of 16 outputs, four numbers a lane.
  __device__ __forceinline__ void copy_output_scales(const NarrowItem& item, int rows,
                                                     int stage) const {
    if (ring.lane >= rows * 4) return;
    const float* from = args.w_scales + item.chunk * args.w_scales_pitch + item.row * 16;
    copy_four(stage, args.scales, from, ring.lane);
  }
  /// What stands behind M is not used.
  __device__ __forceinline__ void copy_token_scales(const NarrowItem& item, int rows,
                                                    int stage) const {
    if (rows <= 0 || ring.lane >= (args.product.M + 3) / 4) return;
    copy_four(stage, args.token_scales, args.x_scales + item.chunk * args.x_scales_pitch,
              ring.lane);
  }
  __device__ __forceinline__ void copy_four(int stage, int place, const float* from,
                                            int index) const {
    ptx::cp_async_cg(ring.stage_address(stage) + static_cast<uint32_t>(place + index * 16),
                     from + index * 4, 16);
  }

  /// Calls copy(item, rows, stage) for the first stages.
  template <class Copy>
  __device__ __forceinline__ void for_first_stages(int row, const Copy& copy) const {
    NarrowItem item = {row, ring.warp};
    for (int stage = 0; stage < args.product.narrow.num_stages; ++stage) {
      copy(item, min(args.product.narrow.rows, ring.row_end - item.row), stage);
      item.chunk += kNarrowWarps;
      if (item.chunk >= args.product.num_chunks) {
        item = {item.row + args.product.narrow.rows, ring.warp};
      }
    }
  }

  /// Scales of outputs are constant: they do not wait for the kernel ahead.
  __device__ __forceinline__ void start(int row) {
    for_first_stages(row, [&](const NarrowItem& item, int rows, int stage) {
      copy_output_scales(item, rows, stage);
    });
    ring.start(row, [&] {
      for_first_stages(row, [&](const NarrowItem& item, int rows, int stage) {
        copy_token_scales(item, rows, stage);
      });
    });
  }

  /// After the last read of the stage at `stage_ahead`.
  __device__ __forceinline__ void refill() {
    __syncwarp();
    copy_output_scales(ring.ahead, ring.rows_ahead(), ring.stage_ahead);
    copy_token_scales(ring.ahead, ring.rows_ahead(), ring.stage_ahead);
    ring.refill();
  }
};

/// One stage of a warp's ring.
struct W4axNarrowStage {
  /// A code becomes the high half of a byte: 16 times the number.
  static constexpr float kUnit = 0.0625f;
  /// Of a row of 16 outputs: as mma.sync has them.
  struct Totals {
    float of[4] = {};
  };

  const W4axNarrowArguments& args;
  const uint8_t* bytes = nullptr;
  int lane = 0;
  uint32_t x[2][4] = {};  // operand B of two steps
  float x_scales[2] = {};

  /// Rows of tokens that do not exist give sums that nobody reads.
  __device__ __forceinline__ void prepare() {
    const int M = args.product.M;
    const uint32_t row = ptx::cvta_to_shared(bytes) +
                         static_cast<uint32_t>(args.product.narrow.inputs +
                                               (lane / 8 * M + min(lane % 8, M - 1)) * 16);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      ptx::ldmatrix_x4(x[half], row + static_cast<uint32_t>(half * 64 * M));
    }
    const auto* scales = reinterpret_cast<const float*>(bytes + args.token_scales);
#pragma unroll
    for (int e = 0; e < 2; ++e) x_scales[e] = scales[min(lane % 4 * 2 + e, M - 1)];
  }

  __device__ __forceinline__ void multiply_row(int i, Totals& totals) const {
    int32_t of_block[4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto codes = *reinterpret_cast<const uint4*>(bytes + i * kW4axRowBytes +
                                                         half * kW4axHalfBytes + lane * 16);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint32_t u = step == 0 ? codes.x : codes.z, v = step == 0 ? codes.y : codes.w;
        const uint32_t a[4] = {u << 4 & 0xF0F0F0F0u, u & 0xF0F0F0F0u, v << 4 & 0xF0F0F0F0u,
                               v & 0xF0F0F0F0u};
        ptx::mma_sync<ptx::MmaS8>(of_block, a, x[half][2 * step], x[half][2 * step + 1]);
      }
    }
    const auto* scales = reinterpret_cast<const float*>(bytes + args.scales) + i * 16 + lane / 4;
    const float w_scales[2] = {scales[0] * kUnit, scales[8] * kUnit};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float scaled = static_cast<float>(of_block[e]) * w_scales[e / 2];
      totals.of[e] = fmaf(scaled, x_scales[e % 2], totals.of[e]);
    }
  }
};

/// Rows [begin, end) of 16 outputs: the warps' sums, [warp][token][sum_pitch], in their order.
__device__ __forceinline__ void write_totals(const W4axNarrowArguments& args, const float* sums,
                                             int begin, int end) {
  const NarrowArguments& product = args.product;
  const int outputs = (end - begin) * 16, pitch = args.product.narrow.sum_pitch;
  for (int i = static_cast<int>(threadIdx.x); i < outputs * product.M; i += kNarrowWarps * 32) {
    const int m = i / outputs, output = i % outputs, n = begin * 16 + output;
    if (n >= product.N) continue;
    const float bias = product.bias != nullptr ? product.bias[n] : 0;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kNarrowWarps; ++warp) {
      sum += sums[(warp * product.M + m) * pitch + output];
    }
    store_number(product.y, product.y_dtype, m * product.y_stride + n, sum + bias);
  }
}

/// Blocks have consecutive rows of 16 outputs, and go through them some at a time.
__global__ void __launch_bounds__(kNarrowWarps * 32, 1)
    w4ax_narrow_kernel(const __grid_constant__ W4axNarrowArguments args) {
  extern __shared__ uint4 shared_memory[];
  auto* const shared = reinterpret_cast<uint8_t*>(shared_memory);
  const NarrowArguments& product = args.product;
  const MixedNarrow& narrow = product.narrow;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int block = static_cast<int>(blockIdx.x);
  const int row_begin = block * product.block_rows + min(block, product.longer_blocks);
  const int row_end = row_begin + product.block_rows + (block < product.longer_blocks ? 1 : 0);
  W4axNarrowRing copies = {.args = args, .ring = {.args = product}};
  auto& ring = copies.ring;
  ring.base = shared + warp * narrow.num_stages * narrow.stage_bytes;
  ring.warp = warp;
  ring.lane = lane;
  ring.barriers = ptx::cvta_to_shared(shared) +
                  static_cast<uint32_t>(narrow.barriers + warp * narrow.num_stages * 8);
  ring.row_end = warp < product.num_chunks ? row_end : row_begin;
  ptx::griddepcontrol_launch_dependents();  // whose blocks come as soon as these here end
  copies.start(row_begin);
  auto* const sums = reinterpret_cast<float*>(shared + narrow.sums);
  int index = 0;
  uint32_t parity = 0;
  for (int span = row_begin; span < row_end; span += narrow.span) {
    const int span_end = min(span + narrow.span, row_end);
    for (int row = span; row < span_end; row += narrow.rows) {
      const int rows = min(narrow.rows, span_end - row);
      W4axNarrowStage::Totals totals[kNarrowRows] = {};
#pragma unroll 1
      for (int chunk = warp; chunk < product.num_chunks; chunk += kNarrowWarps) {
        W4axNarrowStage stage = {.args = args, .bytes = ring.stage(index), .lane = lane};
        ring.wait_for_inputs();
        stage.prepare();
        ring.wait_for_weights(index, parity);
        // Two at a time without a branch between.
#pragma unroll
        for (int i = 0; i < kNarrowRows; i += 2) {
          if (i + 1 < rows) {
            stage.multiply_row(i, totals[i]);
            stage.multiply_row(i + 1, totals[i + 1]);
          } else if (i < rows) {
            stage.multiply_row(i, totals[i]);
          }
        }
        copies.refill();
        if (++index == narrow.num_stages) {
          index = 0;
          parity ^= 1;
        }
      }
      if (row == span && span > row_begin) __syncthreads();  // the sums before have been read
      float* mine = sums + warp * product.M * narrow.sum_pitch;
#pragma unroll
      for (int i = 0; i < kNarrowRows; ++i) {
        if (i < rows) store_narrow_sums(product, lane, totals[i].of, (row - span + i) * 16, mine);
      }
    }
    __syncthreads();
    write_totals(args, sums, span, span_end);
  }
}

}  // namespace halley::cuda
