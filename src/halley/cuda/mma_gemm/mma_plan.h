// The choice of a tile and of parts of K for an mma.sync product. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>

#include "halley/cuda/mixed_gemm/mixed_plan.h"
#include "halley/cuda/mma_gemm/mma_arguments.h"

namespace halley::cuda {

/// All tiles that are compiled, by tokens.
inline constexpr std::array<MmaTile, 2> kMmaTiles = {{{16, 8}, {64, 4}}};
/// Blocks that a tile is meant to have on an SM at a time.
inline constexpr int kMmaBlocks = 2;

struct MmaShape {
  MmaKind kind = MmaKind::kU4S8;
  int64_t M = 0, N = 0, K = 0;
  int group_size = 128;  // as stored: 32, 64 or 128
};

struct MmaPlan {
  int tile_index = 0;  // in kMmaTiles
  int token_tiles = 0;
  int num_panels = 0;  // of 128 outputs
  int num_splits = 1;
  int num_stages = 0;
  int shared_bytes = 0;
  size_t partial_bytes = 0;

  const MmaTile& tile() const { return kMmaTiles[static_cast<size_t>(tile_index)]; }
  size_t workspace_bytes() const { return partial_bytes; }
};

std::ostream& operator<<(std::ostream& out, const MmaPlan& plan);

/// By rules, not by times: no GPU of these generations was at hand. M, N and K at least 1.
MmaPlan plan_mma_gemm(const MmaShape& shape, const MixedDevice& device);
/// The plan that keeps the order in which a row's sums are added, whatever M.
MmaPlan invariant_mma_plan(const MmaShape& shape, const MixedDevice& device);
/// This tile and so many parts, or as many as there are chunks: for tests and for tuning.
MmaPlan mma_plan_of(const MmaShape& shape, const MixedDevice& device, int tile_index,
                    int num_splits);

/// The most that plan_mma_gemm() takes from the workspace, for any shape.
size_t mma_workspace_bytes_max(const MixedDevice& device);

}  // namespace halley::cuda
