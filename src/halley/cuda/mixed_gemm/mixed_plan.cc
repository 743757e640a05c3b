#include "halley/cuda/mixed_gemm/mixed_plan.h"

#include <algorithm>
#include <limits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"

namespace halley::cuda {
namespace {

// Measured on an H200 with a prototype of W4A8; those of 16 bits by the ratio of the tensor cores'
// rates. Clocks of 1.755 GHz.
constexpr double kStageClocks = 200;      // of a block for 128 inputs, whatever the tile
constexpr double kStageClocksOfS8 = 195;  // more for 128 outputs, s8
constexpr double kStageClocksOf16 = 300;  // the same for 16 bits
constexpr double kOperationsOfS8 = 7790;  // of a multiprocessor in a clock
constexpr double kOperationsOf16 = 4178;
constexpr double kBytesOfClock = 20;  // from memory, of one multiprocessor's share
constexpr double kEpilogueClocks = 400, kEpilogueClocksOfSum = 33;
constexpr double kSharedClocks = 1800, kSharedClocksOfSum = 32;
constexpr double kSharerClocks = 150, kSharerClocksOfSum = 16;

double stage_clocks(MixedKind kind, const MixedTile& tile) {
  const double latency = kStageClocks + (is_s8(kind) ? kStageClocksOfS8 : kStageClocksOf16) *
                                            tile.outputs / kChunkOutputs;
  const double operations = 2.0 * tile.tokens * tile.outputs * kChunkInputs;
  return std::max(latency, operations / (is_s8(kind) ? kOperationsOfS8 : kOperationsOf16));
}

double estimate(const MixedShape& shape, const MixedPlan& plan) {
  const MixedSchedule& schedule = plan.schedule;
  const double sums = num_sums(plan.tile);
  const double stage = stage_clocks(shape.kind, plan.tile);
  const double epilogue = kEpilogueClocks + kEpilogueClocksOfSum * sums;
  const double rounds = ceil_div(schedule.whole_tiles, schedule.num_blocks);
  double clocks = rounds * (schedule.num_chunks * stage + epilogue);
  if (const int chunks = num_shared_chunks(schedule); chunks > 0) {
    const int each = ceil_div(chunks, schedule.num_blocks);
    const double sharers = static_cast<double>(schedule.num_chunks) / each + 1;
    clocks += each * stage + epilogue + kSharedClocks + kSharedClocksOfSum * sums +
              sharers * (kSharerClocks + kSharerClocksOfSum * sums);
  }
  return clocks;
}

MixedPlan plan_of(const MixedShape& shape, const MixedDevice& device, int tile_index) {
  MixedPlan plan;
  plan.tile_index = tile_index;
  plan.tile = kMixedTiles[static_cast<size_t>(tile_index)];
  plan.num_stages = num_stages_of(shape.kind, plan.tile, chunk_bytes(shape.kind, shape.group_size),
                                  device.shared_bytes_max);
  HALLEY_CHECK(plan.num_stages >= 2, plan.tile.tokens, device.shared_bytes_max);
  const int64_t token_tiles = ceil_div<int64_t>(shape.M, plan.tile.tokens);
  const int64_t output_tiles = ceil_div<int64_t>(shape.N, plan.tile.outputs);
  const int64_t num_chunks = ceil_div<int64_t>(shape.K, kChunkInputs);
  HALLEY_CHECK(token_tiles <= std::numeric_limits<int>::max() / 2 / output_tiles, shape.M, shape.N);
  HALLEY_CHECK(num_chunks <= 1 << 20, shape.K);
  plan.token_tiles = static_cast<int>(token_tiles);
  plan.output_tiles = static_cast<int>(output_tiles);
  plan.schedule.num_tiles = plan.token_tiles * plan.output_tiles;
  plan.schedule.num_chunks = static_cast<int>(num_chunks);
  return plan;
}

/// Takes the schedule where it can be and is better than what the plan has.
void consider(const MixedShape& shape, int num_blocks, int whole_tiles, MixedPlan* best) {
  MixedPlan plan = *best;
  plan.schedule.num_blocks = num_blocks;
  plan.schedule.whole_tiles = whole_tiles;
  const int64_t shared_tiles = plan.schedule.num_tiles - whole_tiles;
  const int64_t shared_chunks = shared_tiles * plan.schedule.num_chunks;
  if (shared_tiles > kSharedTilesMax || shared_chunks > std::numeric_limits<int>::max()) return;
  if (shared_chunks > 0 && shared_chunks < num_blocks) return;
  plan.clocks = estimate(shape, plan);
  if (best->schedule.num_blocks == 0 || plan.clocks < best->clocks) *best = plan;
}

}  // namespace

const char* name_of(MixedKind kind) {
  switch (kind) {
    case MixedKind::kU4S8:
      return "u4_s8";
    case MixedKind::kU4GroupS8:
      return "u4_group_s8";
    case MixedKind::kU4F16:
      return "u4_f16";
    case MixedKind::kU4Bf16:
      return "u4_bf16";
  }
  return "?";
}

size_t MixedPlan::workspace_bytes() const {
  if (is_narrow || num_shared_chunks(schedule) == 0) return 0;
  return static_cast<size_t>(num_partial_slots(schedule) * partial_bytes(tile));
}

std::ostream& operator<<(std::ostream& out, const MixedPlan& plan) {
  const MixedSchedule& schedule = plan.schedule;
  if (plan.is_narrow) return out << "narrow";
  return out << "tile " << plan.tile.tokens << " tokens x " << plan.tile.outputs << " outputs, "
             << plan.num_stages << " stages, " << schedule.num_tiles << " tiles of "
             << schedule.num_chunks << " chunks on " << schedule.num_blocks << " blocks, "
             << schedule.num_tiles - schedule.whole_tiles << " shared";
}

MixedPlan plan_mixed_tile(const MixedShape& shape, const MixedDevice& device, int tile_index) {
  MixedPlan plan = plan_of(shape, device, tile_index);
  const int tiles = plan.schedule.num_tiles, all = device.num_multiprocessors;
  consider(shape, std::min(tiles, all), tiles, &plan);
  const int rounds = tiles / all;
  if (tiles % all != 0) {
    consider(shape, all, rounds * all, &plan);
    if (rounds > 0) consider(shape, all, (rounds - 1) * all, &plan);
  }
  for (int parts = 2; tiles <= all / parts; ++parts) consider(shape, tiles * parts, 0, &plan);
  // What memory allows is the least for all; it decides between tiles that both wait for it.
  const double bytes = static_cast<double>(shape.N) * static_cast<double>(shape.K) / 2;
  plan.clocks = std::max(plan.clocks, bytes / (kBytesOfClock * all)) + plan.clocks * 1e-3;
  return plan;
}

MixedPlan shared_mixed_plan(const MixedShape& shape, const MixedDevice& device, int tile_index,
                            int num_blocks) {
  MixedPlan plan = plan_of(shape, device, tile_index);
  HALLEY_CHECK(int64_t{plan.schedule.num_tiles} * plan.schedule.num_chunks >= num_blocks,
               num_blocks);
  HALLEY_CHECK(plan.schedule.num_tiles <= kSharedTilesMax, plan.schedule.num_tiles);
  plan.schedule.num_blocks = num_blocks;
  plan.schedule.whole_tiles = 0;
  return plan;
}

bool can_be_narrow(const MixedShape& shape) { return shape.M <= 8 && shape.K % 64 == 0; }

MixedPlan narrow_mixed_plan(const MixedShape& shape) {
  HALLEY_CHECK(can_be_narrow(shape), shape.M, shape.K);
  MixedPlan plan;
  plan.is_narrow = true;
  plan.schedule.num_chunks = static_cast<int>(ceil_div<int64_t>(shape.K, kChunkInputs));
  return plan;
}

MixedPlan plan_mixed_gemm(const MixedShape& shape, const MixedDevice& device) {
  HALLEY_CHECK(shape.M >= 1 && shape.N >= 1 && shape.K >= 1, shape.M, shape.N, shape.K);
  if (can_be_narrow(shape)) return narrow_mixed_plan(shape);
  MixedPlan best;
  for (size_t i = 0; i < kMixedTiles.size(); ++i) {
    const MixedPlan plan = plan_mixed_tile(shape, device, static_cast<int>(i));
    if (i == 0 || plan.clocks < best.clocks) best = plan;
  }
  return best;
}

}  // namespace halley::cuda
