#include "halley/cuda/ablation/ablation.h"

#include <algorithm>
#include <array>

#include "halley/base/check.h"
#include "halley/cuda/ablation/ablation_kernels.h"
#include "halley/cuda/w4ax_gemm/w4ax_launch.h"

namespace halley::cuda {
namespace {

constexpr std::array<AblationVariant, 10> kVariants = {{
    {.name = "full"},
    {.name = "no_pipeline", .launch_of = serial_launch, .has_one_stage = true},
    {.name = "no_decode_ahead", .launch_of = serial_launch},
    {.name = "no_interleave", .launch_of = rows_launch, .has_rows = true},
    {.name = "no_conversion", .launch_of = signed_launch},
    {.name = "no_sharing", .has_whole_tiles = true},
    {.name = "with_none",
     .launch_of = serial_rows_signed_launch,
     .has_rows = true,
     .has_one_stage = true,
     .has_whole_tiles = true},
    {.name = "with_stages",
     .launch_of = serial_rows_signed_launch,
     .has_rows = true,
     .has_whole_tiles = true},
    {.name = "with_interleave", .launch_of = serial_signed_launch, .has_whole_tiles = true},
    {.name = "with_conversion", .launch_of = serial_launch, .has_whole_tiles = true},
}};

}  // namespace

std::span<const AblationVariant> ablation_variants() { return kVariants; }

TilePlan plan_whole_tiles(const ProductShape& shape, const CudaDeviceInfo& device, int tile_index) {
  TilePlan plan = plan_one_tile(w4ax_family(), shape, device, tile_index);
  plan.split = 1;
  plan.schedule.whole_tiles = plan.schedule.num_tiles;
  plan.schedule.num_blocks = std::min(plan.schedule.num_tiles, device.num_sms * plan.tile.blocks);
  return plan;
}

void ablated_w4ax_gemm(const CudaContext& context, const AblationVariant& variant,
                       const W4axWeight& weight, const W4axOperands& operands, TilePlan plan,
                       Matrix y) {
  const bool is_whole = plan.split == 1 && num_shared_chunks(plan.schedule) == 0;
  HALLEY_CHECK(is_whole || !variant.has_whole_tiles, variant.name);
  if (variant.launch_of == nullptr) {
    w4ax_gemm_planned(context, weight, operands, plan, y);
    return;
  }
  const W4axLaunch launch = variant.launch_of(plan.tile.tokens);
  HALLEY_CHECK(launch != nullptr, variant.name, plan.tile.tokens);
  if (variant.has_one_stage) {
    // Keeps the shared memory of all stages: the CTAs of a split tile exchange their accumulators
    // there.
    plan.stage.num_bytes *= plan.num_stages;
    plan.num_stages = 1;
  }
  w4ax_gemm_launched(context, weight, operands, {.plan = plan, .launch = launch}, y);
}

}  // namespace halley::cuda
