// Layout of a nested weight's lower plane, and of the kernel's stages. Pure functions of the host
// and the device.
#pragma once

#include "halley/cuda/hopper_tile/tile_shape.h"

namespace halley::cuda {

/// Inputs of a stage: rows of 128 bytes of the upper plane. Less than a full line of 128 bytes
/// takes the copy engine as long as one.
inline constexpr int kNestedInputs = 128;
inline constexpr int kNestedSteps = kNestedInputs / 16;
/// One plane of 128 outputs and 128 inputs.
inline constexpr int kNestedChunkBytes = kTileOutputs * kNestedInputs;

/// Where in its chunk the lower byte of an output and an input (of the chunk) lies. A thread reads
/// 8 bytes a step of 16 inputs, its share of the fragment (PTX ISA, wgmma, "m64k16"): with lane = 4
/// g + c of warp w of a warpgroup, outputs 16 w + g and 16 w + g + 8; of each, inputs 2 c, 2 c + 1,
/// 2 c + 8 and 2 c + 9.
constexpr int lower_offset(int output, int input) {
  const int warpgroup = output / 64, warp = output % 64 / 16, row = output % 16;
  const int step = input / 16, k = input % 16;
  const int thread = warp * 32 + row % 8 * 4 + k % 8 / 2;
  const int byte = row / 8 * 4 + k / 8 * 2 + k % 2;
  return ((warpgroup * kNestedSteps + step) * 128 + thread) * 8 + byte;
}

/// A stage: the upper plane, the lower one, then 64 inputs of the tokens, 128 bytes each, and the
/// other 64. Planes and both halves are filled and emptied for themselves: parts 0, 1 and 2.
inline constexpr int kNestedParts = 3;
inline constexpr int kNestedTokensOffset = 2 * kNestedChunkBytes;
constexpr StageNeeds nested_stage(const HopperTile& tile) {
  return {kNestedTokensOffset + tile.tokens * kNestedInputs * 2, kNestedParts};
}

}  // namespace halley::cuda
