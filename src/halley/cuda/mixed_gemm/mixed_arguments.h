// What a launch of a Hopper product passes to the GPU.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/mixed_gemm/mixed_schedule.h"
#include "halley/cuda/mixed_gemm/mixed_tile.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct MixedArguments {
  const uint8_t* weights = nullptr;  // chunks, as mixed_layout.h says
  int chunk_bytes = 0;
  int group_shift = 0;  // log2 of a group's steps
  int num_panels = 0;   // ceil(N / 128)
  int num_stages = 0;
  int token_tiles = 0;
  MixedShared shared;
  DealtSchedule schedule;
  MixedParts of_units;  // of a tile's sums, for the blocks of a cluster
  /// With givers: slots of a tile's sums, and a counter for each, zero between launches.
  void* left_sums = nullptr;
  uint32_t* counters = nullptr;
  int M = 0, N = 0;
  bool starts_early = false;
  RowScales scales;             // of s8
  const float* bias = nullptr;  // [N]
  void* y = nullptr;
  DType y_dtype = DType::kF16;
  int64_t y_stride = 0;  // elements
  /// y is of 16 bits and its rows begin at multiples of 16 bytes: the copy engine writes it.
  bool has_y_map = false;
  int y_box_vectors = 1;  // of eight tokens, of a box of y: 1, or all that a block writes

  /// Of a tile: divisions take long, and few tokens have but one.
  __device__ int token_tile(int tile) const { return token_tiles == 1 ? 0 : tile % token_tiles; }
  __device__ int output_tile(int tile) const {
    return token_tiles == 1 ? tile : tile / token_tiles;
  }
};

/// Whether sums are corrected by those of the inputs' codes: U4GroupS8Decoder's numbers are 128 too
/// large, and weights may have offsets.
constexpr bool needs_input_sums(MixedKind kind, const RowScales& scales) {
  return kind == MixedKind::kU4GroupS8 || scales.w_offsets != nullptr;
}

/// Of x: boxes of 128 bytes by a tile's tokens; of y: 64 outputs by 8 tokens or more.
struct MixedMaps {
  CUtensorMap x;
  CUtensorMap y;
};

/// Queues one instance of the kernel.
using MixedLaunch = void (*)(const CudaContext& context, const MixedMaps& maps,
                             const MixedArguments& args);

}  // namespace halley::cuda
