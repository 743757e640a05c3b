// What each part of the W4Ax product is worth: the product without one or more of them, as in
// figures 13 and 14 of Liu et al. 2024, "COMET". See README.md in this folder.
#pragma once

#include <span>

#include "halley/core/matrix.h"
#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_arguments.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {

/// A form of the product. All give the same bits where tiles and schedule are the same.
struct AblationVariant {
  const char* name = nullptr;
  /// Of a tile with so many tokens, null where none is compiled; empty: the product's own kernel.
  W4axLaunch (*launch_of)(int tokens) = nullptr;
  /// Codes of weights are in the order of row_order.h, not of w4ax_layout.h.
  bool has_rows = false;
  /// The next inputs are copied only when those before have been multiplied.
  bool has_one_stage = false;
  /// A tile has one block, which multiplies all its inputs.
  bool has_whole_tiles = false;
};

/// The product "full", without one part each ("no_..."), and without all of them, to which each
/// line adds a part ("with_..."). The parts behind the last line are decoding ahead ("no_sharing"
/// is that) and sharing ("full").
std::span<const AblationVariant> ablation_variants();

/// A plan with this tile in which no tile is shared.
TilePlan plan_whole_tiles(const ProductShape& shape, const CudaDeviceInfo& device, int tile_index);

/// As w4ax_gemm_planned(). A variant with whole tiles needs such a plan.
void ablated_w4ax_gemm(const CudaContext& context, const AblationVariant& variant,
                       const W4axWeight& weight, const W4axOperands& operands, TilePlan plan,
                       Matrix y);

}  // namespace halley::cuda
