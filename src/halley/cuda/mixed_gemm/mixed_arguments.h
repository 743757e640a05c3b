// What a launch of a Hopper product passes to the GPU.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/mixed_gemm/mixed_schedule.h"
#include "halley/cuda/mixed_gemm/mixed_tile.h"

namespace halley::cuda {

struct MixedArguments {
  const uint8_t* weights = nullptr;  // chunks, as mixed_layout.h says
  int chunk_bytes = 0;
  int group_shift = 0;  // log2 of a group's steps
  int num_panels = 0;   // ceil(N / 128)
  int num_stages = 0;
  int token_tiles = 0;
  MixedShared shared;
  MixedSchedule schedule;
  int M = 0, N = 0;
  bool starts_early = false;
  /// Of at most eight tokens: x itself.
  const void* x = nullptr;
  int64_t x_stride_bytes = 0;
  int num_halves = 0;           // K / 64
  RowScales scales;             // of s8
  const float* bias = nullptr;  // [N]
  void* y = nullptr;
  DType y_dtype = DType::kF16;
  int64_t y_stride = 0;        // elements
  bool has_wide_rows = false;  // rows of y begin at multiples of 16 bytes
  /// Of shared tiles: slots of sums, and for each tile and warpgroup the number of blocks that are
  /// done, zero between launches.
  void* partials = nullptr;
  uint32_t* counters = nullptr;
};

/// Queues the kernel for at most eight tokens.
using NarrowLaunch = void (*)(const MixedArguments& args, cudaStream_t stream);

/// Queues one instance of the kernel.
using MixedLaunch = void (*)(const CUtensorMap& x_map, const MixedArguments& args,
                             cudaStream_t stream);

}  // namespace halley::cuda
