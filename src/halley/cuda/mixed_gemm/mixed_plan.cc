#include "halley/cuda/mixed_gemm/mixed_plan.h"

#include <algorithm>
#include <array>
#include <limits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"

namespace halley::cuda {
namespace {

/// Microseconds on an H200, fitted to time_mixed_gemm() of all tiles and of the layers of Llama-3:
/// times are, within a tenth, a constant and these.
struct TileCosts {
  double stage = 0;  // 128 inputs
  double tile = 0;   // the end of a tile
  double part = 0;   // a block's part of a shared tile, beside its stages
};

/// Of kU4S8, kU4GroupS8 and 16 bits; columns are kMixedTiles.
constexpr std::array<std::array<TileCosts, kMixedTiles.size()>, 3> kCosts = {{
    {{{0.261, 0.3, 2.8},
      {0.362, 0.4, 2.9},
      {0.321, 0.8, 4.0},
      {0.514, 1.2, 4.8},
      {0.726, 2.2, 6.5}}},
    {{{0.358, 0.3, 2.6},
      {0.518, 0.4, 3.0},
      {0.423, 0.8, 3.5},
      {0.672, 1.2, 4.4},
      {0.895, 2.2, 6.3}}},
    {{{0.456, 0.3, 2.6},
      {0.761, 0.4, 3.2},
      {0.590, 0.8, 3.7},
      {1.043, 1.2, 3.9},
      {1.395, 2.2, 5.5}}},
}};
constexpr double kSharerMicroseconds = 0.1;           // of a part that is added
constexpr double kMemoryBytesPerMicrosecond = 32000;  // of one multiprocessor's share

const TileCosts& costs_of(MixedKind kind, int tile_index) {
  const size_t row = kind == MixedKind::kU4S8 ? 0 : kind == MixedKind::kU4GroupS8 ? 1 : 2;
  return kCosts[row][static_cast<size_t>(tile_index)];
}

double estimate(const MixedShape& shape, const MixedPlan& plan) {
  const MixedSchedule& schedule = plan.schedule;
  const TileCosts& costs = costs_of(shape.kind, plan.tile_index);
  const double rounds = ceil_div(schedule.whole_tiles, schedule.num_blocks);
  double time = rounds * (schedule.num_chunks * costs.stage + costs.tile);
  if (const int chunks = num_shared_chunks(schedule); chunks > 0) {
    const int parts = tile_parts(schedule);
    const int each =
        parts > 0 ? ceil_div(schedule.num_chunks, parts) : ceil_div(chunks, schedule.num_blocks);
    time += each * costs.stage + costs.tile;
    // A block whose part is not of one tile has two ends.
    if (parts != 1) {
      time += (parts > 0 ? 1 : 2) * costs.part + kSharerMicroseconds * schedule.num_chunks / each;
    }
  }
  return time;
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
  plan.microseconds = estimate(shape, plan);
  if (best->schedule.num_blocks == 0 || plan.microseconds < best->microseconds) *best = plan;
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
  const double least = bytes / (kMemoryBytesPerMicrosecond * all);
  plan.microseconds = std::max(plan.microseconds, least) + plan.microseconds * 1e-3;
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

MixedPlan invariant_mixed_plan(const MixedShape& shape, const MixedDevice& device) {
  constexpr int kTileIndex = 2;  // 64 tokens, 128 outputs: neither few nor many tokens suffer much
  MixedPlan plan = plan_of(shape, device, kTileIndex);
  const int tiles = plan.schedule.num_tiles;
  consider(shape, std::min(tiles, device.num_multiprocessors), tiles, &plan);
  return plan;
}

size_t mixed_workspace_bytes_max(const MixedDevice& device) {
  int64_t most = 0;
  for (const MixedTile& tile : kMixedTiles) most = std::max(most, partial_bytes(tile));
  const MixedSchedule all_share = {.num_blocks = device.num_multiprocessors};
  return static_cast<size_t>(num_partial_slots(all_share) * most);
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
    if (i == 0 || plan.microseconds < best.microseconds) best = plan;
  }
  return best;
}

}  // namespace halley::cuda
