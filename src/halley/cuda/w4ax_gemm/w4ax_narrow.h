// What a launch of the W4Ax product of few tokens passes to the GPU.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "halley/core/dtype.h"

namespace halley::cuda {

inline constexpr int kW4axNarrowWarps = 32;
/// Rows of 16 outputs that a warp multiplies at a time.
inline constexpr int kW4axNarrowRows = 2;
/// Items of a warp that are on their way to the L2 cache before it comes to them.
inline constexpr int kW4axNarrowAhead = 3;
/// Bytes of sums that a block keeps before its warps add them: the inputs need the L1 cache.
inline constexpr int kW4axNarrowKeptBytes = 64 * 1024;

struct W4axNarrowArguments {
  const uint8_t* codes = nullptr;   // chunks, as w4ax_layout.h says
  const float* w_scales = nullptr;  // [blocks][w_scales_pitch]
  int64_t w_scales_pitch = 0;
  const uint8_t* x = nullptr;
  int64_t x_stride = 0;             // bytes
  const float* x_scales = nullptr;  // [blocks][x_scales_pitch]
  int64_t x_scales_pitch = 0;
  int M = 0, N = 0, K = 0;
  int num_rows = 0;             // of 16 outputs
  int num_chunks = 0;           // blocks of inputs
  int pass_rows = 0;            // whose sums are kept: the kernel's
  const float* bias = nullptr;  // [N]
  void* y = nullptr;
  DType y_dtype = DType::kF16;
  int64_t y_stride = 0;  // elements
};

struct W4axNarrowLaunch {
  int num_blocks = 1;
  bool starts_early = false;
  cudaStream_t stream = nullptr;
};
void launch_w4ax_narrow(W4axNarrowArguments args, const W4axNarrowLaunch& launch);

}  // namespace halley::cuda
