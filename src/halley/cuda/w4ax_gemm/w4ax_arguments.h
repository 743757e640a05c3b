// What a launch of the W4Ax product passes to the GPU.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "halley/cuda/hopper_tile/tile_arguments.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {

/// Blocks of an SM, with tiles whose sums leave room for two.
constexpr int w4ax_blocks(int tokens) { return tokens <= 64 ? 2 : 1; }

/// A stage: tokens, 128 bytes each, then codes of weights, then both scales: 128 of outputs, and
/// one for each token.
constexpr int w4ax_codes_offset(int tokens) { return tokens * kW4axInputs; }
constexpr int w4ax_scales_offset(int tokens) { return w4ax_codes_offset(tokens) + kW4axChunkBytes; }
constexpr int kW4axScaleBytes = kTileOutputs * 4;
/// Bytes that are copied into a stage.
constexpr int w4ax_copied_bytes(int tokens) {
  return w4ax_scales_offset(tokens) + kW4axScaleBytes + tokens * 4;
}
constexpr StageNeeds w4ax_stage(const HopperTile& tile) {
  const int bytes = w4ax_copied_bytes(tile.tokens);
  return {(bytes + kTileAlignment - 1) / kTileAlignment * kTileAlignment, 1};
}

struct W4axArguments {
  TileArguments tile;
  const uint8_t* codes = nullptr;   // chunks, as w4ax_layout.h says
  const float* w_scales = nullptr;  // [blocks][num_panels * kTileOutputs]
  int num_panels = 0;               // ceil(N / kTileOutputs)
  const float* x_scales = nullptr;  // [blocks][x_scales_pitch]
  int64_t x_scales_pitch = 0;
};

/// Queues one instance of the kernel; `x_map`: 128 inputs of a tile's tokens,
/// swizzled by 128 bytes.
using W4axLaunch = void (*)(const CudaContext& context, const CUtensorMap& x_map,
                            const W4axArguments& args);

/// The instances are listed in CMakeLists.txt.
template <int kTokens>
void launch_w4ax(const CudaContext& context, const CUtensorMap& x_map, const W4axArguments& args);

}  // namespace halley::cuda
