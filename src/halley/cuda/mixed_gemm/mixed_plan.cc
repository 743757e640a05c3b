#include "halley/cuda/mixed_gemm/mixed_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/mixed_gemm/mixed_settings.h"
#include "halley/cuda/tuning/tuned_plans.h"

namespace halley::cuda {
namespace {

/// Microseconds on an H200, fitted to times of all tilings of the layers of Llama-3 with 8
/// to 256 rows: the choice is within a few percent of the best one, in the mean.
struct TileCosts {
  double latency = 0;  // of a stage, 128 inputs, of a block alone
  double stage = 0;    // of a block's stage where blocks share an SM
  double tile = 0;     // the end of a tile
};
struct KindCosts {
  std::array<TileCosts, kMixedTiles.size()> tiles;
  double exchange = 0;  // of a cluster's sums, at least
  double vector = 0;    // of one that is sent and added
  double bytes = 0;     // a microsecond, of one SM's share of memory or decoding
  /// What an owner does more of a shared tile than each of its givers, in chunks.
  double lead_chunks = 0;
};
/// Of s8, of 16 bits, and of 16 bits with codes of 8 bits, which have not the last tiles.
constexpr std::array<KindCosts, 3> kCosts = {{
    {{{{0.220, 0.100, 0.01},
       {0.278, 0.281, 0.01},
       {0.217, 0.210, 0.67},
       {0.329, 0.382, 0.24},
       {0.275, 0.283, 2.48},
       {0.620, 0.670, 2.77},
       {0.170, 0.209, 0.01},
       {0.195, 0.210, 0.34}}},
     1.50,
     0.128,
     31800,
     9},
    {{{{0.367, 0.100, 0.01},
       {0.505, 0.180, 0.01},
       {0.494, 0.492, 0.01},
       {0.877, 0.300, 0.39},
       {0.418, 0.675, 0.90},
       {0.620, 1.026, 5.45},
       {0.357, 0.246, 0.27},
       {0.389, 0.319, 0.01}}},
     1.40,
     0.095,
     18800,
     3},
    {{{{0.300, 0.150, 0.01},
       {0.500, 0.512, 0.02},
       {0.587, 0.250, 0.05},
       {1.025, 0.500, 0.27},
       {0.700, 0.856, 0.01}}},
     0.58,
     0.216,
     36600,
     0},
}};
constexpr std::array<int, 8> kRanks = {1, 2, 3, 4, 5, 6, 7, 8};
/// From a giver's last product to its owner's having the sums, and for each of their vectors.
constexpr double kLeaveMicroseconds = 2.0, kLeftVectorMicroseconds = 0.06;
/// Of a ring: with fewer, blocks wait for each one.
constexpr int stages_min(MixedKind kind) { return is_u8(kind) ? 3 : 2; }
/// With more rows tiles are faster: a narrow block reads all of X. Of 8 bits only rows that become
/// digits: others took 1.1 to 1.5 times as long as tiles.
constexpr int64_t narrow_rows_max(MixedKind kind) { return is_u8(kind) ? kDigitTokens : 4; }

const KindCosts& costs_of(MixedKind kind) { return kCosts[is_s8(kind) ? 0 : is_u8(kind) ? 2 : 1]; }

const MixedTile& tile_of(const MixedTiling& tiling) {
  return kMixedTiles[static_cast<size_t>(tiling.tile_index)];
}

/// Clusters that run at the same time: those of several blocks leave a part of every group of
/// SMs idle, those of three one in nine (40 of them take two rounds).
int num_clusters_of(const MixedDevice& device, const MixedTiling& tiling) {
  const int blocks = device.num_sms * tiling.blocks_per_multiprocessor;
  if (tiling.num_ranks <= 2) return blocks / tiling.num_ranks;
  const int parts = tiling.num_ranks == 3 ? 9 : 11;
  return std::max(1, blocks * (parts - 1) / parts / tiling.num_ranks);
}

/// Of one block.
int shared_bytes_of(const MixedDevice& device, const MixedTiling& tiling) {
  // The system keeps a kilobyte of every block.
  return tiling.blocks_per_multiprocessor == 1 ? device.shared_bytes_max
                                               : (device.shared_bytes_max - 1024) / 2;
}

int num_stages_of(const MixedShape& shape, const MixedDevice& device, const MixedTiling& tiling) {
  return num_stages_of(shape.kind, tile_of(tiling), chunk_bytes(shape.kind, shape.group_size),
                       tiling.num_ranks, shared_bytes_of(device, tiling));
}

/// What an owner has to read, at most: of so many givers.
int num_parts_of(const MixedSchedule& schedule) {
  const DealtSchedule dealt(schedule);
  int most = 0;
  for (int i = 0; i < num_shared_tiles(schedule); ++i) {
    most = std::max(most, slots_of(dealt, num_whole_tiles(schedule) + i).count);
  }
  return most;
}

/// As many givers of each tile, or as many tiles for each giver: blocks then read the same inputs
/// of all tokens at the same time, and neighbours read them once. A giver adds to not more than
/// four tiles, and an owner reads what not more than three have left.
bool are_aligned(int shared, int givers) {
  if (shared < 1 || givers < 1 || shared > 4 * givers || givers > 3 * shared) return false;
  return shared >= givers ? shared % givers == 0 : givers % shared == 0;
}

/// Whether the kernel is compiled for givers: with activations of 16 bits chunks have one group.
bool can_share(const MixedShape& shape, const MixedTile& tile) {
  return can_have_givers(shape.kind, tile) &&
         (is_s8(shape.kind) || shape.group_size == kChunkInputs);
}

/// Blocks that would have a tile less than others become givers. None (num_givers is 0) where
/// there are no such blocks, or too few chunks.
MixedSchedule sharing_schedule(const MixedShape& shape, const MixedDevice& device,
                               const MixedTiling& tiling) {
  const MixedTile& tile = tile_of(tiling);
  const int num_chunks = static_cast<int>(ceil_div<int64_t>(shape.K, kChunkInputs));
  const int64_t num_tiles =
      ceil_div<int64_t>(shape.M, tile.tokens) * ceil_div<int64_t>(shape.N, tile.outputs);
  const int blocks_max = std::min(device.num_sms * tiling.blocks_per_multiprocessor, kSlotsMax);
  const int64_t whole = num_tiles / blocks_max;  // of every block
  MixedSchedule schedule = {.num_tiles = static_cast<int>(num_tiles), .num_chunks = num_chunks};
  // As long as that is less for every block than whole tiles in turn.
  const int64_t waves = ceil_div<int64_t>(num_tiles, blocks_max);
  for (int blocks = blocks_max; waves * blocks > num_tiles; --blocks) {
    const int shared = static_cast<int>(std::max<int64_t>(num_tiles - whole * blocks, 0));
    const int givers = blocks - shared;
    const bool are_even = shared % 2 == 0 && givers % 2 == 0;
    if ((schedule.num_givers > 0 && !are_even) || !are_aligned(shared, givers)) continue;
    // Givers' last sums are on their way while owners still multiply; with whole tiles behind
    // them they are early anyway.
    const double lead =
        whole > 0 ? 0 : costs_of(shape.kind).lead_chunks * std::max(1, shared / givers);
    const double own = (double(shared) * num_chunks + givers * lead) / blocks;
    const int own_chunks = std::clamp(static_cast<int>(std::lround(own)), 1, num_chunks);
    if (shared * (num_chunks - own_chunks) < givers) continue;
    schedule.num_blocks = blocks;
    schedule.num_givers = givers;
    schedule.own_chunks = own_chunks;
    schedule.has_pairs = are_even;
    if (are_even) break;
  }
  return schedule;
}

/// Of a block's stage in the plan.
double stage_microseconds(const MixedShape& shape, const MixedDevice& device,
                          const MixedPlan& plan) {
  const KindCosts& of_kind = costs_of(shape.kind);
  const TileCosts& costs = of_kind.tiles[static_cast<size_t>(plan.tiling.tile_index)];
  const int num_blocks = plan.schedule.num_blocks;
  const int blocks = ceil_div(num_blocks, device.num_sms);
  const int most = plan.tiling.blocks_per_multiprocessor;
  // Blocks of large clusters come to lie two on one SM while others are idle.
  const double share = plan.schedule.num_ranks > 2 ? most : std::min(blocks, most);
  const double chunks = plan.tile.outputs / kChunkOutputs;
  const double memory = chunks * chunk_bytes(shape.kind, shape.group_size) * num_blocks /
                        (of_kind.bytes * device.num_sms);
  return std::max({costs.latency, share * costs.stage, memory});
}

double estimate_of_sharing(const MixedPlan& plan, double stage, double tile) {
  const MixedSchedule& schedule = plan.schedule;
  const int whole = num_whole_tiles(schedule) / schedule.num_blocks;
  const double helped =
      ceil_div(num_left_chunks(schedule), schedule.num_givers) * stage + kLeaveMicroseconds;
  const double whole_tiles = whole * (schedule.num_chunks * stage + tile);
  const double own = schedule.own_chunks * stage;
  // Owners wait for givers whose sums are the last thing they do.
  const double longest = whole > 0 ? whole_tiles + std::max(own, helped) : std::max(own, helped);
  return longest + tile + num_parts_of(schedule) * num_vectors(plan.tile) * kLeftVectorMicroseconds;
}

double estimate(const MixedShape& shape, const MixedDevice& device, const MixedPlan& plan) {
  const MixedSchedule& schedule = plan.schedule;
  const KindCosts& of_kind = costs_of(shape.kind);
  const TileCosts& costs = of_kind.tiles[static_cast<size_t>(plan.tiling.tile_index)];
  const double stage = stage_microseconds(shape, device, plan);
  if (schedule.num_givers > 0) return estimate_of_sharing(plan, stage, costs.tile);
  const int ranks = schedule.num_ranks;
  double tile = ceil_div(schedule.num_chunks, ranks) * stage + costs.tile / std::sqrt(ranks);
  if (ranks > 1) {
    tile += of_kind.exchange + of_kind.vector * num_vectors(plan.tile) * (ranks - 1) / ranks;
  }
  return ceil_div(schedule.num_tiles, schedule.num_blocks / ranks) * tile;
}

bool prefers_narrow(const MixedShape& shape) {
  if (shape.M > narrow_rows_max(shape.kind)) return false;
  const MixedNarrowShape narrow = {
      .kind = shape.kind,
      .M = static_cast<int>(shape.M),
      .num_chunks = static_cast<int>(ceil_div<int64_t>(shape.K, kChunkInputs)),
      .group_size = shape.group_size};
  return !is_u8(shape.kind) || has_narrow_digits(narrow);
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
    case MixedKind::kU8F16:
      return "u8_f16";
    case MixedKind::kU8Bf16:
      return "u8_bf16";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, const MixedPlan& plan) {
  const MixedSchedule& schedule = plan.schedule;
  if (plan.is_narrow) {
    return out << "narrow, " << plan.narrow.rows << " rows at a time, " << plan.num_stages
               << " stages, " << schedule.num_tiles << " rows of " << schedule.num_chunks
               << " chunks on " << schedule.num_blocks << " blocks";
  }
  return out << "tile " << plan.tile.tokens << " tokens x " << plan.tile.outputs << " outputs, "
             << plan.num_stages << " stages, " << schedule.num_tiles << " tiles of "
             << schedule.num_chunks << " chunks on " << schedule.num_blocks << " blocks, "
             << (schedule.num_givers > 0 ? str(schedule.num_givers, " of them givers from chunk ",
                                               schedule.own_chunks, " on")
                                         : str(schedule.num_ranks, " a tile"))
             << ", " << plan.tiling.blocks_per_multiprocessor << " an SM";
}

size_t MixedPlan::workspace_bytes() const {
  return static_cast<size_t>(num_slots(schedule)) * static_cast<size_t>(num_vectors(tile)) *
         kVectorBytes;
}

size_t mixed_workspace_bytes_max(const MixedDevice& device) {
  int vectors_max = 0;  // of the slots of an SM's blocks
  for (const MixedTile& tile : kMixedTiles) {
    vectors_max = std::max(vectors_max, num_vectors(tile) * (is_small(tile) ? 2 : 1));
  }
  return static_cast<size_t>(device.num_sms) * static_cast<size_t>(vectors_max) * kVectorBytes;
}

bool can_tile(const MixedShape& shape, const MixedDevice& device, const MixedTiling& tiling) {
  const MixedTile& tile = tile_of(tiling);
  return has_tile(shape.kind, tile) &&
         ceil_div<int64_t>(shape.K, kChunkInputs) >= tiling.num_ranks &&
         num_units(tile) >= tiling.num_ranks &&
         (tiling.blocks_per_multiprocessor == 1 || is_small(tile)) &&
         (!tiling.shares_last_tiles || (tiling.num_ranks == 1 && can_share(shape, tile) &&
                                        sharing_schedule(shape, device, tiling).num_givers > 0)) &&
         num_stages_of(shape, device, tiling) >= stages_min(shape.kind);
}

MixedPlan tiled_mixed_plan(const MixedShape& shape, const MixedDevice& device,
                           const MixedTiling& tiling) {
  HALLEY_CHECK(can_tile(shape, device, tiling), tiling.tile_index, tiling.num_ranks,
               tiling.blocks_per_multiprocessor, device.shared_bytes_max);
  MixedPlan plan;
  plan.tile = tile_of(tiling);
  plan.tiling = tiling;
  plan.num_stages = num_stages_of(shape, device, tiling);
  const int64_t token_tiles = ceil_div<int64_t>(shape.M, plan.tile.tokens);
  const int64_t output_tiles = ceil_div<int64_t>(shape.N, plan.tile.outputs);
  const int64_t num_chunks = ceil_div<int64_t>(shape.K, kChunkInputs);
  HALLEY_CHECK(token_tiles <= std::numeric_limits<int>::max() / 2 / output_tiles, shape.M, shape.N);
  HALLEY_CHECK(num_chunks <= 1 << 20, shape.K);
  plan.token_tiles = static_cast<int>(token_tiles);
  plan.output_tiles = static_cast<int>(output_tiles);
  const int num_tiles = plan.token_tiles * plan.output_tiles;
  plan.schedule = {
      .num_blocks = std::min(num_clusters_of(device, tiling), num_tiles) * tiling.num_ranks,
      .num_tiles = num_tiles,
      .num_chunks = static_cast<int>(num_chunks),
      .num_ranks = tiling.num_ranks};
  if (tiling.shares_last_tiles) plan.schedule = sharing_schedule(shape, device, tiling);
  plan.microseconds = estimate(shape, device, plan);
  return plan;
}

MixedPlan invariant_mixed_plan(const MixedShape& shape, const MixedDevice& device) {
  // Neither few nor many tokens suffer much. As many blocks a tile as fill the device for few.
  MixedTiling tiling = {.tile_index = 2};
  const int64_t output_tiles = ceil_div<int64_t>(shape.N, tile_of(tiling).outputs);
  for (const int num_ranks : {2, 3, 4, 8}) {
    MixedTiling more = tiling;
    more.num_ranks = num_ranks;
    if (output_tiles <= num_clusters_of(device, more) && can_tile(shape, device, more)) {
      tiling = more;
    }
  }
  return tiled_mixed_plan(shape, device, tiling);
}

std::vector<MixedTiling> mixed_tilings(const MixedShape& shape, const MixedDevice& device) {
  std::vector<MixedTiling> tilings;
  for (int tile_index = 0; tile_index < static_cast<int>(kMixedTiles.size()); ++tile_index) {
    for (const int num_ranks : kRanks) {
      for (const int blocks : {1, 2}) {
        for (const bool shares_last_tiles : {false, true}) {
          const MixedTiling tiling = {tile_index, num_ranks, blocks, shares_last_tiles};
          if (can_tile(shape, device, tiling)) tilings.push_back(tiling);
        }
      }
    }
  }
  return tilings;
}

bool can_be_narrow(const MixedShape& shape) { return shape.M <= kNarrowTokens; }

MixedPlan narrow_mixed_plan(const MixedShape& shape, const MixedDevice& device, int rows,
                            int shared_bytes) {
  HALLEY_CHECK(can_be_narrow(shape), shape.M);
  HALLEY_CHECK(rows >= 1 && rows <= kNarrowRows, rows);
  const auto all_rows = static_cast<int>(ceil_div<int64_t>(shape.N, 16));
  MixedPlan plan;
  plan.is_narrow = true;
  plan.schedule.num_tiles = all_rows;
  plan.schedule.num_blocks = std::min(all_rows, device.num_sms);
  plan.schedule.num_chunks = static_cast<int>(ceil_div<int64_t>(shape.K, kChunkInputs));
  const int block_rows = ceil_div(all_rows, plan.schedule.num_blocks);
  // Equal parts, which all pass the ring at the same time.
  rows = ceil_div(block_rows, ceil_div(block_rows, rows));
  // Not more than a warp ever copies.
  const int items = ceil_div(block_rows, rows) * ceil_div(plan.schedule.num_chunks, kNarrowWarps);
  for (int stages = 1; stages <= std::min(items, kNarrowStagesMax); ++stages) {
    const MixedNarrow narrow = mixed_narrow({.kind = shape.kind,
                                             .M = static_cast<int>(shape.M),
                                             .num_chunks = plan.schedule.num_chunks,
                                             .group_size = shape.group_size},
                                            block_rows, rows, stages);
    if (stages == 1 || narrow.num_bytes <= shared_bytes) plan.narrow = narrow;
  }
  plan.num_stages = plan.narrow.num_stages;
  return plan;
}

MixedPlan narrow_mixed_plan(const MixedShape& shape, const MixedDevice& device) {
  // The most rows at a time with which the ring has two stages.
  MixedPlan plan;
  for (int rows = kNarrowRows; rows >= 1; --rows) {
    plan = narrow_mixed_plan(shape, device, rows, device.shared_bytes_max);
    if (plan.num_stages >= 2) break;
  }
  return plan;
}

MixedPlan plan_mixed_gemm(const MixedShape& shape, const MixedDevice& device) {
  HALLEY_CHECK(shape.M >= 1 && shape.N >= 1 && shape.K >= 1, shape.M, shape.N, shape.K);
  const TunedPlan* tuned = find_tuned_plan(device.num_sms, tuned_gemm_of(shape), shape.M);
  // What was measured with more rows says nothing of so few.
  const int64_t rows_max = narrow_rows_max(shape.kind);
  if (prefers_narrow(shape) && (tuned == nullptr || tuned->rows > rows_max)) {
    return narrow_mixed_plan(shape, device);
  }
  if (tuned != nullptr) {
    if (auto plan = mixed_plan_of(shape, device, tuned->settings)) return *plan;
  }
  MixedPlan best;
  for (const MixedTiling& tiling : mixed_tilings(shape, device)) {
    const MixedPlan plan = tiled_mixed_plan(shape, device, tiling);
    if (best.schedule.num_blocks == 0 || plan.microseconds < best.microseconds) best = plan;
  }
  return best;
}

}  // namespace halley::cuda
