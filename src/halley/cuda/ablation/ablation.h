// Ablation of the W4Ax GEMM: the kernel without one or more of its parts, as in figures 13 and 14
// of Liu et al. 2024, "COMET". See README.md in this folder.
#pragma once

#include <span>

#include "halley/core/matrix.h"
#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_arguments.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {

/// A variant of the kernel. All variants give the same bits if tile and schedule are the same.
struct AblationVariant {
  const char* name = nullptr;
  /// Launcher for a tile of so many tokens, null where none is compiled. An empty pointer is the
  /// W4Ax GEMM's own kernel.
  W4axLaunch (*launch_of)(int tokens) = nullptr;
  /// Weights are packed as in row_order.h, not as in w4ax_layout.h.
  bool has_rows = false;
  /// A single pipeline stage: the next k-block is copied only after the MMAs of the one before.
  bool has_one_stage = false;
  /// One CTA computes all of a tile's k-blocks: no Stream-K, no split-K.
  bool has_whole_tiles = false;
};

/// The full kernel ("full"), without one part each ("no_..."), and without all parts, to which each
/// line adds one ("with_..."). The parts after the last line are dequantizing ahead ("no_sharing"
/// is that) and Stream-K ("full").
std::span<const AblationVariant> ablation_variants();

/// A plan with this tile in which one CTA computes each tile.
TilePlan plan_whole_tiles(const ProductShape& shape, const CudaDeviceInfo& device, int tile_index);

/// As w4ax_gemm_planned(). A variant with whole tiles needs such a plan.
void ablated_w4ax_gemm(const CudaContext& context, const AblationVariant& variant,
                       const W4axWeight& weight, const W4axOperands& operands, TilePlan plan,
                       Matrix y);

}  // namespace halley::cuda
