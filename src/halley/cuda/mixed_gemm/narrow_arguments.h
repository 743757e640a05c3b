// What a launch of the kernel for few tokens passes to the GPU.
#pragma once

#include <cstdint>

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/mixed_gemm/mixed_narrow.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// What the first copies need is in front: blocks wait for each line of it that they read.
struct NarrowArguments {
  const uint8_t* weights = nullptr;  // chunks, as mixed_layout.h says
  int chunk_bytes = 0;
  int group_shift = 0;  // log2 of a group's steps
  int num_chunks = 0;   // of 128 inputs
  int num_blocks = 0;
  /// Rows of 16 outputs that every block has, and how many of the first ones have one more.
  int block_rows = 0, longer_blocks = 0;
  MixedNarrow narrow;
  int M = 0, N = 0;
  const void* x = nullptr;
  int64_t x_stride_bytes = 0;
  int x_row_bytes = 0;          // K inputs
  RowScales scales;             // of s8
  const float* bias = nullptr;  // [N]
  void* y = nullptr;
  DType y_dtype = DType::kF16;
  int64_t y_stride = 0;  // elements
  bool starts_early = false;
};

/// Queues the kernel for few tokens.
using NarrowLaunch = void (*)(const CudaContext& context, const NarrowArguments& args);

}  // namespace halley::cuda
