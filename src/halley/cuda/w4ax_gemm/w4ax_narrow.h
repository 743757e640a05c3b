// What a launch of the W4Ax product of few tokens passes to the GPU, and what its blocks keep in
// shared memory. Pure functions of the host and the device.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/narrow_arguments.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {

/// A stage of a warp's ring has codes [row][half][lane], inputs, scales of outputs and then those
/// of tokens; a block's shared memory as mixed_narrow.h says.
struct W4axNarrow {
  MixedNarrow shared;
  int scales = 0;        // in a stage
  int token_scales = 0;  // in a stage
};

/// `rows` at a time of `block_rows` that a block has in all, each of 16 outputs.
constexpr W4axNarrow w4ax_narrow(int M, int block_rows, int rows, int num_stages) {
  W4axNarrow narrow;
  MixedNarrow& shared = narrow.shared;
  shared.rows = rows;
  shared.num_stages = num_stages;
  const int passes = kNarrowSums / (16 * M * rows);
  shared.span = passes > 1 ? passes * rows : rows;
  if (shared.span > block_rows) shared.span = block_rows;
  shared.groups = shared.inputs = rows * kW4axRowBytes;
  narrow.scales = shared.inputs + M * kW4axInputs;
  narrow.token_scales = narrow.scales + rows * 64;
  const int stage_bytes = narrow.token_scales + (M + 3) / 4 * 16;
  shared.stage_bytes = (stage_bytes + kCopyLine - 1) / kCopyLine * kCopyLine;
  shared.sums = kNarrowWarps * num_stages * shared.stage_bytes;
  shared.sum_pitch = shared.span * 16 + 4;
  shared.barriers = shared.sums + kNarrowWarps * M * shared.sum_pitch * 4;
  shared.num_bytes = shared.barriers + kNarrowWarps * num_stages * 8;
  return narrow;
}

/// With as many rows at a time as leave room for two stages of a warp, and as many stages as
/// `shared_bytes` of a block allow and a warp ever copies.
constexpr W4axNarrow w4ax_narrow_that_fits(int M, int block_rows, int num_chunks,
                                           int shared_bytes) {
  W4axNarrow best;
  for (int rows = kNarrowRows; rows >= 1 && best.shared.num_stages < 2; --rows) {
    // Equal parts, which all pass the ring at the same time.
    const int passes = (block_rows + rows - 1) / rows, each = (block_rows + passes - 1) / passes;
    const int items = passes * ((num_chunks + kNarrowWarps - 1) / kNarrowWarps);
    const int most = items < kNarrowStagesMax ? items : kNarrowStagesMax;
    for (int stages = 1; stages <= most; ++stages) {
      const W4axNarrow narrow = w4ax_narrow(M, block_rows, each, stages);
      if (stages == 1 || narrow.shared.num_bytes <= shared_bytes) best = narrow;
    }
    if (items == 1) break;
  }
  return best;
}

/// What the first copies need is in front: blocks wait for each line of it that they read.
struct W4axNarrowArguments {
  const float* w_scales = nullptr;  // [blocks][w_scales_pitch]
  int64_t w_scales_pitch = 0;
  const float* x_scales = nullptr;  // [blocks][x_scales_pitch]
  int64_t x_scales_pitch = 0;
  int scales = 0;  // as W4axNarrow
  int token_scales = 0;
  /// Of weights whose chunks are those of MixedKind::kU4S8; without its scales.
  NarrowArguments product;
};

void launch_w4ax_narrow(const CudaContext& context, const W4axNarrowArguments& args);

}  // namespace halley::cuda
