// What a block of the kernel for one or two rows and codes of 1 or 2 bits keeps in shared memory.
// Pure functions of the host and the device.
#pragma once

#include <cstdint>

#include "halley/cuda/gemv/gemv_digits.h"
#include "halley/cuda/gemv/gemv_weight.h"

namespace halley::cuda {

/// They take turns along K: each has whole pieces.
inline constexpr int kGemvPlaneWarps = 16;
/// Rows of x, at most.
inline constexpr int kGemvPlaneRows = 2;
/// Tiles of 16 outputs that a block has at a time, at most.
constexpr int gemv_plane_tiles(int rows) { return rows == 1 ? 8 : 4; }
/// Stages of a warp's ring: these, or one less.
inline constexpr int kGemvPlaneStages = 4;
/// Pieces that a warp makes planes of at once.
inline constexpr int kGemvPlaneBatch = 4;

/// Binary products of a piece, of eight planes each: inputs of 16 bits are numbers of 24.
constexpr int gemv_plane_products(GemvInputs inputs) { return inputs == GemvInputs::kS8 ? 1 : 3; }
/// Of a row and piece: planes as [product][lane][2 words], then two numbers and a gap, so that
/// lanes that store planes of neighbouring pieces meet no bank twice.
constexpr int gemv_plane_bytes(GemvInputs inputs) { return gemv_plane_products(inputs) * 256 + 32; }

/// What the kernel reads is in front: it waits for each line of its arguments.
struct GemvPlanePlan {
  int tiles = 0;   // at a time
  int span = 0;    // tiles whose sums are kept until warps add them: a multiple of `tiles`, or all
  int stages = 0;  // of a warp's ring
  int stage_bytes = 0;
  int kept = 0;    // pieces that a warp has room for planes of: all, or kGemvPlaneBatch
  int planes = 0;  // bytes before [warp][kept][row][gemv_plane_bytes()]
  int copies = 0;  // bytes before [warp] of copies of inputs whose planes are not kept
  int warp_copies = 0;
  int sums = 0;       // bytes before [warp][row][sum_pitch]
  int sum_pitch = 0;  // numbers
  int num_bytes = 0;
  int blocks = 0;
};

/// Of no blocks where the kernel does not take it: codes of other bits, more than two rows, groups
/// below 128 inputs, a K whose inputs leave no room, or few inputs of s8 and outputs, for which the
/// kernel for more rows is faster.
GemvPlanePlan plan_gemv_planes(const GemvShape& shape, int64_t M, const GemvDevice& device);

}  // namespace halley::cuda
