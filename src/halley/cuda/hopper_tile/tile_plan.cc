#include "halley/cuda/hopper_tile/tile_plan.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/hopper_tile/tile_settings.h"
#include "halley/cuda/tuning/tuned_plans.h"

namespace halley::cuda {
namespace {

constexpr double kSharerMicroseconds = 0.1;           // of a part that is added
constexpr double kPartsMicroseconds = 4;              // all parts of a tile end at once
constexpr double kMemoryBytesPerMicrosecond = 34000;  // of one SM's share
/// Blocks that share tiles are at different inputs at a time: what several of them read comes from
/// memory each time, unless so many bytes, all that is read, stay in the L2 cache.
constexpr double kKeptBytes = 40e6;
constexpr double kUnkeptFactor = 1.7;

/// All bytes that the schedule's shared tiles read.
double shared_bytes(const TileFamily& family, const TilePlan& plan) {
  const TileSchedule& schedule = plan.schedule;
  const double weights = kTileOutputs * family.stage_inputs * family.weight_bits / 8;
  const int panels = ceil_div(schedule.num_tiles - schedule.whole_tiles, plan.token_tiles);
  return schedule.num_chunks *
         (panels * weights + plan.token_tiles * (plan.stage.num_bytes - weights));
}

/// Blocks beside each other only where there are more of them than SMs: clusters else
/// come to lie on few.
int blocks_together(const TilePlan& plan, const CudaDeviceInfo& device) {
  return plan.schedule.num_blocks * plan.split > device.num_sms ? plan.tile.blocks : 1;
}

double estimate(const TileFamily& family, const CudaDeviceInfo& device, const TilePlan& plan) {
  const TimedTile& costs = family.tiles[static_cast<size_t>(plan.tile_index)];
  const TileSchedule& schedule = plan.schedule;
  const double stage = costs.stage * blocks_together(plan, device);
  if (plan.split > 1) {
    return ceil_div(schedule.num_chunks, plan.split) * stage + costs.end + costs.split * plan.split;
  }
  const double rounds = ceil_div(schedule.whole_tiles, schedule.num_blocks);
  double time = rounds * (schedule.num_chunks * stage + costs.end);
  if (const int chunks = num_shared_chunks(schedule); chunks > 0) {
    const int each = schedule.parts > 0 ? ceil_div(schedule.num_chunks, schedule.parts)
                                        : ceil_div(chunks, schedule.num_blocks);
    const bool is_kept = plan.token_tiles == 1 || shared_bytes(family, plan) <= kKeptBytes;
    time += each * stage * (is_kept ? 1 : kUnkeptFactor) + costs.end;
    // In one row a block has parts of two tiles.
    time += schedule.parts > 0 ? kPartsMicroseconds + costs.part / 2
                               : 2 * costs.part + kSharerMicroseconds * schedule.num_chunks / each;
  }
  return time;
}

/// What follows from the schedule.
void finish_plan(const TileFamily& family, const CudaDeviceInfo& device, TilePlan* plan) {
  plan->num_stages =
      num_tile_stages(plan->tile, plan->stage, static_cast<int>(device.shared_bytes_max),
                      blocks_together(*plan, device));
  HALLEY_CHECK(plan->num_stages >= 2, plan->tile.tokens, device.shared_bytes_max);
  plan->microseconds = estimate(family, device, *plan);
}

TilePlan plan_of(const TileFamily& family, const ProductShape& shape, int tile_index) {
  HALLEY_CHECK(shape.M >= 1 && shape.N >= 1 && shape.K >= 1, shape.M, shape.N, shape.K);
  TilePlan plan;
  plan.tile_index = tile_index;
  plan.tile = family.tiles[static_cast<size_t>(tile_index)].tile;
  plan.stage = family.stage(plan.tile);
  const int64_t token_tiles = ceil_div<int64_t>(shape.M, plan.tile.tokens);
  const int64_t output_tiles = ceil_div<int64_t>(shape.N, kTileOutputs);
  const int64_t num_chunks = ceil_div<int64_t>(shape.K, family.stage_inputs);
  HALLEY_CHECK(token_tiles <= std::numeric_limits<int>::max() / 2 / output_tiles, shape.M, shape.N);
  HALLEY_CHECK(num_chunks <= 1 << 20, shape.K);
  plan.token_tiles = static_cast<int>(token_tiles);
  plan.schedule.num_tiles = static_cast<int>(token_tiles * output_tiles);
  plan.schedule.num_chunks = static_cast<int>(num_chunks);
  return plan;
}

/// The same tiles for `num_blocks`, the first `whole_tiles` of them not shared.
TileSchedule dealt(const TilePlan& plan, int num_blocks, int whole_tiles, int parts = 0) {
  TileSchedule schedule = plan.schedule;
  schedule.num_blocks = num_blocks;
  schedule.whole_tiles = whole_tiles;
  schedule.parts = parts;
  return schedule;
}

/// What memory allows is the least for all plans; it decides between those that wait for it.
void bound_by_memory(const TileFamily& family, const ProductShape& shape,
                     const CudaDeviceInfo& device, TilePlan* plan) {
  const double bytes =
      static_cast<double>(shape.N) * static_cast<double>(shape.K) * family.weight_bits / 8;
  const double least = bytes / (kMemoryBytesPerMicrosecond * device.num_sms);
  plan->microseconds = std::max(plan->microseconds, least) + plan->microseconds * 1e-3;
}

/// Whether the schedule keeps within the limits.
bool can_be(const TilePlan& plan) {
  const TileSchedule& schedule = plan.schedule;
  const int64_t shared_tiles = schedule.num_tiles - schedule.whole_tiles;
  const int64_t shared_chunks = shared_tiles * schedule.num_chunks;
  return shared_tiles <= kSharedTileTilesMax && shared_chunks <= std::numeric_limits<int>::max() &&
         (shared_chunks == 0 || shared_chunks >= schedule.num_blocks) &&
         schedule.num_chunks >= std::max(plan.split, schedule.parts);
}

/// The schedule of a deal; without blocks where there is none.
TileSchedule schedule_of(const TilePlan& plan, const CudaDeviceInfo& device) {
  const TileDeal& deal = plan.deal;
  const int tiles = plan.schedule.num_tiles;
  const int some = device.num_sms * deal.blocks;
  // With fewer blocks a deal of fewer on an SM is the same.
  const auto can_have = [&](int64_t num_blocks) {
    return num_blocks <= some && num_blocks > some - device.num_sms;
  };
  if (deal.split > 1) {
    // Not all SMs can be had in clusters of three and four.
    const int64_t all = int64_t{tiles} * deal.split;
    const bool fits = deal.split == 2 || all * 100 <= int64_t{some} * 90;
    return can_have(all) && fits ? dealt(plan, tiles, tiles) : TileSchedule{};
  }
  if (deal.shared_rounds == 0) {
    const int num_blocks = std::min(tiles, some);
    return can_have(num_blocks) ? dealt(plan, num_blocks, tiles) : TileSchedule{};
  }
  const int rounds = tiles / some, rest = tiles % some;
  if (rest == 0 || deal.shared_rounds > rounds + 1) return {};
  if (deal.parts == 0) return dealt(plan, some, (rounds + 1 - deal.shared_rounds) * some);
  const int64_t parts = int64_t{rest} * deal.parts;
  if (deal.shared_rounds > 1 || parts > some) return {};
  if (rounds > 0) return dealt(plan, some, rounds * some, deal.parts);
  return can_have(parts) ? dealt(plan, static_cast<int>(parts), 0, deal.parts) : TileSchedule{};
}

/// All deals of a tile, for any number of tiles.
std::vector<TileDeal> deals_of(const TileFamily& family, int tile_index) {
  std::vector<TileDeal> deals;
  const int most = family.tiles[static_cast<size_t>(tile_index)].tile.blocks;
  for (int blocks = 1; blocks <= most; ++blocks) {
    const TileDeal whole = {.tile_index = tile_index, .blocks = blocks};
    deals.push_back(whole);
    for (TileDeal deal = whole; deal.shared_rounds < kTileSharedRoundsMax;) {
      ++deal.shared_rounds;
      deals.push_back(deal);
    }
    for (TileDeal deal = whole; deal.parts < kTilePartsMax;) {
      deal.shared_rounds = 1;
      deal.parts = std::max(2, deal.parts + 1);
      deals.push_back(deal);
    }
    for (TileDeal deal = whole; deal.split < kTileSplitMax;) {
      ++deal.split;
      deals.push_back(deal);
    }
  }
  return deals;
}

/// Tokens of the smallest tile: what is best for them is for fewer.
constexpr int64_t kSmallestTile = 16;
/// Candidates: estimates up to so many times the least. They are not that wrong.
constexpr double kSlowestEstimate = 1.6;

bool is_near(const HopperTile& tile, int64_t M) {
  return tile.tokens <= std::max(2 * M, kSmallestTile) && M <= int64_t{tile.tokens} * 16;
}

}  // namespace

std::optional<TilePlan> plan_dealt(const TileFamily& family, const ProductShape& shape,
                                   const CudaDeviceInfo& device, const TileDeal& deal) {
  TilePlan plan = plan_of(family, shape, deal.tile_index);
  plan.deal = deal;
  plan.split = deal.split;
  plan.schedule = schedule_of(plan, device);
  if (plan.schedule.num_blocks == 0 || !can_be(plan)) return {};
  finish_plan(family, device, &plan);
  bound_by_memory(family, shape, device, &plan);
  return plan;
}

size_t TilePlan::workspace_bytes() const {
  if (num_shared_chunks(schedule) == 0) return 0;
  return static_cast<size_t>(num_partial_slots(schedule) * tile_partial_bytes(tile.tokens));
}

std::ostream& operator<<(std::ostream& out, const TilePlan& plan) {
  const TileSchedule& schedule = plan.schedule;
  return out << "tile " << plan.tile.tokens << " tokens x " << kTileOutputs << " outputs, "
             << plan.num_stages << " stages, " << schedule.num_tiles << " tiles of "
             << schedule.num_chunks << " chunks on " << schedule.num_blocks << " blocks, "
             << schedule.num_tiles - schedule.whole_tiles << " shared in " << schedule.parts
             << " parts, split by " << plan.split;
}

std::vector<TilePlan> plans_of_tile(const TileFamily& family, const ProductShape& shape,
                                    const CudaDeviceInfo& device, int tile_index) {
  std::vector<TilePlan> plans;
  for (const TileDeal& deal : deals_of(family, tile_index)) {
    if (auto plan = plan_dealt(family, shape, device, deal)) plans.push_back(*plan);
  }
  return plans;
}

TilePlan plan_one_tile(const TileFamily& family, const ProductShape& shape,
                       const CudaDeviceInfo& device, int tile_index) {
  const std::vector<TilePlan> plans = plans_of_tile(family, shape, device, tile_index);
  return *std::min_element(plans.begin(), plans.end(), [](const TilePlan& a, const TilePlan& b) {
    return a.microseconds < b.microseconds;
  });
}

TilePlan plan_invariant_tiles(const TileFamily& family, const ProductShape& shape,
                              const CudaDeviceInfo& device) {
  constexpr int kTokens = 64;  // few tokens lose little, and many not all
  size_t tile = 0;
  while (tile + 1 < family.tiles.size() && family.tiles[tile].tile.tokens < kTokens) ++tile;
  TilePlan plan = plan_of(family, shape, static_cast<int>(tile));
  const int tiles = plan.schedule.num_tiles;
  plan.schedule = dealt(plan, std::min(tiles, device.num_sms * plan.tile.blocks), tiles);
  finish_plan(family, device, &plan);
  return plan;
}

TilePlan plan_tiles(const TileFamily& family, const ProductShape& shape,
                    const CudaDeviceInfo& device) {
  const TunedPlan* tuned = find_tuned_plan(device.num_sms, tuned_gemm_of(family, shape), shape.M);
  if (tuned != nullptr) {
    if (auto plan = tile_plan_of(family, shape, device, tuned->settings)) return *plan;
  }
  TilePlan best;
  for (size_t i = 0; i < family.tiles.size(); ++i) {
    const TilePlan plan = plan_one_tile(family, shape, device, static_cast<int>(i));
    if (i == 0 || plan.microseconds < best.microseconds) best = plan;
  }
  return best;
}

std::vector<TilePlan> timed_plans(const TileFamily& family, const ProductShape& shape,
                                  const CudaDeviceInfo& device, bool has_all_tiles) {
  std::vector<TilePlan> plans;
  for (size_t i = 0; has_all_tiles && i < family.tiles.size(); ++i) {
    if (!is_near(family.tiles[i].tile, shape.M)) continue;
    for (TilePlan& plan : plans_of_tile(family, shape, device, static_cast<int>(i))) {
      plans.push_back(std::move(plan));
    }
  }
  if (plans.empty()) return {plan_tiles(family, shape, device)};
  double least = plans.front().microseconds;
  for (const TilePlan& plan : plans) least = std::min(least, plan.microseconds);
  std::erase_if(plans,
                [&](const TilePlan& plan) { return plan.microseconds > kSlowestEstimate * least; });
  return plans;
}

size_t tile_workspace_bytes_max(const TileFamily& family, int num_sms) {
  size_t most = 0;
  for (const TimedTile& timed : family.tiles) {
    most = std::max(most, static_cast<size_t>(2 * num_sms * timed.tile.blocks *
                                              tile_partial_bytes(timed.tile.tokens)));
  }
  return most;
}

bool has_wide_rows(const ConstMatrix& matrix) {
  const auto stride = static_cast<uint64_t>(matrix.row_stride * (bits_of(matrix.dtype) / 8));
  return (std::bit_cast<uintptr_t>(matrix.data) | stride) % 16 == 0;
}

TileArguments tile_arguments(const TilePlan& plan, const TileProduct& product) {
  const Matrix& y = product.y;
  HALLEY_CHECK(y.dtype == DType::kF16 || y.dtype == DType::kBf16 || y.dtype == DType::kF32,
               y.dtype);
  HALLEY_CHECK(y.num_rows <= std::numeric_limits<int>::max() / 2, y.num_rows);
  TileArguments args;
  args.num_stages = plan.num_stages;
  args.stage_bytes = plan.stage.num_bytes;
  args.token_tiles = plan.token_tiles;
  args.shared = tile_shared(plan.tile, plan.num_stages, plan.stage);
  args.schedule = plan.schedule;
  args.split = plan.split;
  args.M = static_cast<int>(y.num_rows);
  args.N = static_cast<int>(y.num_cols);
  args.starts_early = product.starts_early;
  args.bias = product.bias;
  args.y = y.data;
  args.y_dtype = y.dtype;
  args.y_stride = y.row_stride;
  args.has_wide_rows = has_wide_rows(y);
  args.partials = product.partials;
  args.counters = static_cast<uint32_t*>(product.counters);
  return args;
}

}  // namespace halley::cuda
