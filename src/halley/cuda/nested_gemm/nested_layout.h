// Layout of a nested weight's lower plane, and of the kernel's stages. Pure functions of the host
// and the device.
#pragma once

#include <cstdint>

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

/// Of the lower plane of a weight [N, K], its padding included.
constexpr int64_t nested_lower_bytes(int64_t N, int64_t K) {
  return (N + kTileOutputs - 1) / kTileOutputs * ((K + kNestedInputs - 1) / kNestedInputs) *
         kNestedChunkBytes;
}

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
/// other 64. Planes and halves of tokens are filled and emptied for themselves.
inline constexpr int kNestedParts = 3;
inline constexpr int kNestedPlanesBytes = 2 * kNestedChunkBytes;
constexpr int nested_half_bytes(int tokens) { return tokens * 128; }
constexpr StageNeeds nested_stage(const HopperTile& tile) {
  return {kNestedPlanesBytes + 2 * nested_half_bytes(tile.tokens), kNestedParts};
}

/// The memory of the stages as a ring of planes and, behind it, one of halves of tokens. Planes
/// come from memory, tokens from the L2 cache: with 256 tokens two stages are three planes and
/// three halves.
struct NestedRings {
  int planes = 0;
  int halves = 0;
};
constexpr NestedRings nested_rings(int tokens, int num_stages) {
  if (tokens == 256 && num_stages == 2) return {3, 3};
  return {num_stages, 2 * num_stages};
}
static_assert(3 * (kNestedPlanesBytes + nested_half_bytes(256)) ==
              2 * nested_stage({256}).num_bytes);

}  // namespace halley::cuda
