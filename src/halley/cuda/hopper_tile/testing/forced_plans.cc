#include "halley/cuda/hopper_tile/testing/forced_plans.h"

#include "halley/base/check.h"

namespace halley::cuda {
namespace {

/// The plan with another schedule, and with the stages that fit beside its CTAs.
TilePlan with_schedule(TilePlan plan, const CudaDeviceInfo& device, const TileSchedule& schedule,
                       int split) {
  plan.schedule = schedule;
  plan.split = split;
  const int together = schedule.num_blocks * split > device.num_sms ? plan.tile.blocks : 1;
  plan.num_stages =
      num_tile_stages(plan.tile, plan.stage, static_cast<int>(device.shared_bytes_max), together);
  return plan;
}

}  // namespace

TilePlan plan_shared_tile(const TileFamily& family, const ProductShape& shape,
                          const CudaDeviceInfo& device, int tile_index, int num_blocks) {
  const TilePlan plan = plan_one_tile(family, shape, device, tile_index);
  TileSchedule schedule = plan.schedule;
  const int tiles = schedule.num_tiles;
  HALLEY_CHECK(int64_t{tiles} * schedule.num_chunks >= num_blocks, num_blocks);
  HALLEY_CHECK(tiles <= kSharedTileTilesMax, tiles);
  schedule.num_blocks = num_blocks;
  schedule.whole_tiles = num_blocks == tiles ? tiles : 0;  // a CTA each: nothing is shared
  schedule.parts = num_blocks % tiles == 0 && num_blocks > tiles ? num_blocks / tiles : 0;
  return with_schedule(plan, device, schedule, 1);
}

TilePlan plan_split_tile(const TileFamily& family, const ProductShape& shape,
                         const CudaDeviceInfo& device, int tile_index, int split) {
  const TilePlan plan = plan_one_tile(family, shape, device, tile_index);
  TileSchedule schedule = plan.schedule;
  HALLEY_CHECK(split >= 2 && split <= kTileSplitMax && split <= schedule.num_chunks, split,
               schedule.num_chunks);
  schedule.num_blocks = schedule.whole_tiles = schedule.num_tiles;
  schedule.parts = 0;
  return with_schedule(plan, device, schedule, split);
}

}  // namespace halley::cuda
