// Layout of a nested weight's lower plane, and of the kernel's stages. Pure functions of the host
// and the device.
#pragma once

#include "halley/cuda/gemm/lane_order.h"
#include "halley/cuda/hopper_tile/tile_shape.h"

namespace halley::cuda {

/// Inputs of a stage: rows of 128 bytes of the upper plane. Less than a full line of 128 bytes
/// takes the copy engine as long as one.
inline constexpr int kNestedInputs = 128;
inline constexpr int kNestedSteps = kNestedInputs / 16;
/// One plane of 128 outputs and 128 inputs.
inline constexpr int kNestedChunkBytes = kTileOutputs * kNestedInputs;

static_assert(kNestedInputs == kLaneInputs);

/// Where in its chunk the lower byte of an output and an input (of the chunk) lies. A thread reads
/// 16 bytes at a time, of one output and of 64 inputs, which are in the order of lane_place():
/// thread 32 w + 4 g + c of a warpgroup has outputs 16 w + g and 16 w + g + 8.
constexpr int lower_offset(int output, int input) {
  const int warpgroup = output / 64, warp = output % 64 / 16, row = output % 16;
  const int place = lane_place(input);
  const int thread = warp * 32 + row % 8 * 4 + place / 32;
  const int vector = (warpgroup * 2 + place % 32 / 16) * 2 + row / 8;
  return (vector * 128 + thread) * 16 + place % 16;
}

/// A stage: the upper plane, the lower one, then 64 inputs of the tokens, 128 bytes each, and the
/// other 64. Planes and both halves are filled and emptied for themselves: parts 0, 1 and 2.
inline constexpr int kNestedParts = 3;
inline constexpr int kNestedTokensOffset = 2 * kNestedChunkBytes;
constexpr StageNeeds nested_stage(const HopperTile& tile) {
  return {kNestedTokensOffset + tile.tokens * kNestedInputs * 2, kNestedParts};
}

}  // namespace halley::cuda
