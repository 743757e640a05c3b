#include "halley/cuda/gemv/gemv_planes.h"

#include <algorithm>

#include "halley/base/checked_math.h"
#include "halley/cuda/gemv/gemv_layout.h"

namespace halley::cuda {
namespace {

/// Tiles whose sums are kept, of one row.
constexpr int kSpanMax = 28;
/// Of s8, pieces of a warp and tiles of a block up to which the kernel for more rows is faster
/// (seen on an H200).
constexpr int kSmallPieces = 2, kSmallTiles = 3;

}  // namespace

GemvPlanePlan plan_gemv_planes(const GemvShape& shape, int64_t M, const GemvDevice& device) {
  const bool has_kernel = shape.bits <= 2 && M >= 1 && M <= kGemvPlaneRows &&
                          (!shape.is_grouped() || shape.group_size >= kGemvPieceInputs);
  if (!has_kernel) return {};
  const auto rows = static_cast<int>(M);
  GemvPlanePlan plan;
  plan.blocks = static_cast<int>(std::min<int64_t>(shape.num_tiles(), device.num_sms));
  const auto block_tiles = static_cast<int>(ceil_div<int64_t>(shape.num_tiles(), plan.blocks));
  const auto own_pieces = static_cast<int>(ceil_div<int64_t>(shape.num_pieces(), kGemvPlaneWarps));
  const int piece_bytes = kGemvPlaneWarps * rows * gemv_plane_bytes(shape.inputs);
  const int input_bytes = shape.inputs == GemvInputs::kS8 ? 1 : 2;
  if (shape.inputs == GemvInputs::kS8 && own_pieces <= kSmallPieces && block_tiles <= kSmallTiles) {
    return {};
  }
  // Equal parts, which all pass the ring at the same time.
  for (int turns = ceil_div(block_tiles, gemv_plane_tiles(rows)); turns <= block_tiles; ++turns) {
    plan.tiles = ceil_div(block_tiles, turns);
    plan.span = std::min(block_tiles, round_up(kSpanMax / rows, plan.tiles));
    // A warp stores sums of an even number of tiles.
    plan.sum_pitch = (round_up(plan.span, plan.tiles) + 1) * kGemvTileOutputs;
    plan.stage_bytes = plan.tiles * (gemv_piece_bytes(shape.bits) + (shape.is_grouped() ? 64 : 0));
    const bool keeps_all = turns > 1 && own_pieces * piece_bytes <= device.shared_bytes_max / 2;
    plan.kept = keeps_all ? own_pieces : std::min(own_pieces, kGemvPlaneBatch);
    plan.warp_copies =
        plan.kept >= own_pieces ? 0 : own_pieces * rows * kGemvPieceInputs * input_bytes;
    for (plan.stages = kGemvPlaneStages; plan.stages >= kGemvPlaneStages - 1; --plan.stages) {
      plan.planes = kGemvPlaneWarps * plan.stages * plan.stage_bytes;
      plan.copies = plan.planes + plan.kept * piece_bytes;
      plan.sums = plan.copies + kGemvPlaneWarps * plan.warp_copies;
      plan.num_bytes = plan.sums + kGemvPlaneWarps * rows * plan.sum_pitch * 4;
      if (plan.num_bytes <= device.shared_bytes_max) return plan;
    }
  }
  return {};
}

}  // namespace halley::cuda
