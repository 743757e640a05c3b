#include "halley/cuda/hopper_tile/tuned_tiles.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/hopper_tile/tuned_file.h"
#include "halley/json/json.h"

namespace halley::cuda {
namespace {

constexpr JsonLimits kLimits = {.depth_max = 8, .num_values_max = 100'000};
constexpr int64_t kSizeMax = int64_t{1} << 24;  // of N, K and rows
/// Tokens of the smallest tile: what is best for them is for fewer.
constexpr int64_t kSmallestTile = 16;
/// Candidates: estimates up to so many times the least. They are not that wrong.
constexpr double kSlowestEstimate = 1.6;

bool is_near(const HopperTile& tile, int64_t M) {
  return tile.tokens <= std::max(2 * M, kSmallestTile) && M <= int64_t{tile.tokens} * 16;
}

const Json& member_of(const Json& object, const char* name, const std::string& where) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end()) {
    throw InputError(str(where, ": expected an object with a member ", quote(name)));
  }
  return *found;
}

int64_t number_of(const Json& object, const char* name, int64_t min, int64_t max,
                  const std::string& where) {
  const Json& value = member_of(object, name, where);
  if (value.is_number_integer() && value >= min && value <= max) return value.get<int64_t>();
  throw InputError(str(where, ": ", name, ": expected a whole number from ", min, " to ", max));
}

std::string text_of(const Json& object, const char* name, const std::string& where) {
  const Json& value = member_of(object, name, where);
  if (value.is_string()) return value.get<std::string>();
  throw InputError(str(where, ": ", name, ": expected a string"));
}

TunedTile tile_of(const Json& row, const std::string& where) {
  const auto number = [&](const char* name, int64_t min, int64_t max) {
    return number_of(row, name, min, max, where);
  };
  TunedTile tile;
  tile.family = text_of(row, "family", where);
  tile.N = number("N", 1, kSizeMax);
  tile.K = number("K", 1, kSizeMax);
  tile.rows = number("rows", 1, kSizeMax);
  tile.tokens = static_cast<int>(number("tokens", 16, 256));
  tile.deal.blocks = static_cast<int>(number("blocks_a_multiprocessor", 1, 2));
  tile.deal.shared_rounds = static_cast<int>(number("shared_rounds", 0, 2));
  tile.deal.parts = static_cast<int>(number("parts", 0, kTilePartsMax));
  tile.deal.split = static_cast<int>(number("split", 1, kTileSplitMax));
  const Json& us = member_of(row, "us", where);
  tile.microseconds = us.is_number() ? us.get<double>() : 0;
  if (tile.microseconds <= 0) throw InputError(str(where, ": us: expected a time above 0"));
  return tile;
}

}  // namespace

std::string to_json(const TunedTile& tile) {
  const OrderedJson row = {{"family", tile.family},
                           {"N", tile.N},
                           {"K", tile.K},
                           {"rows", tile.rows},
                           {"tokens", tile.tokens},
                           {"blocks_a_multiprocessor", tile.deal.blocks},
                           {"shared_rounds", tile.deal.shared_rounds},
                           {"parts", tile.deal.parts},
                           {"split", tile.deal.split},
                           {"us", std::round(tile.microseconds * 1000) / 1000}};
  return row.dump();
}

TunedTile tuned_tile(const TileFamily& family, const ProductShape& shape, const TilePlan& plan,
                     double microseconds) {
  return {.family = std::string(family.name),
          .N = shape.N,
          .K = shape.K,
          .rows = shape.M,
          .tokens = plan.tile.tokens,
          .deal = plan.deal,
          .microseconds = microseconds};
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

TunedTiles TunedTiles::parse(std::string_view text, const std::string& where) {
  const Json file = parse_json(text, where, kLimits);
  if (text_of(file, "format", where) != "halley-tuned-tiles") {
    throw InputError(str(where, ": format: expected \"halley-tuned-tiles\""));
  }
  number_of(file, "version", 1, 1, where);
  TunedTiles tiles;
  tiles.num_sms_ = static_cast<int>(number_of(file, "multiprocessors", 1, 4096, where));
  const Json& rows = member_of(file, "plans", where);
  if (!rows.is_array()) throw InputError(str(where, ": plans: expected an array"));
  for (const Json& row : rows) {
    tiles.plans_.push_back(tile_of(row, str(where, ": plans[", tiles.plans_.size(), "]")));
  }
  return tiles;
}

std::optional<TileDeal> TunedTiles::find(const TileFamily& family,
                                         const ProductShape& shape) const {
  const TunedTile* best = nullptr;
  for (const TunedTile& one : plans_) {
    if (one.family != family.name || one.N != shape.N || one.K != shape.K) continue;
    const bool is_near = one.rows <= kSmallestTile || one.rows < 2 * shape.M;
    if (one.rows < shape.M || !is_near) continue;
    if (best == nullptr || one.rows < best->rows) best = &one;
  }
  if (best == nullptr) return {};
  for (size_t i = 0; i < family.tiles.size(); ++i) {
    if (family.tiles[i].tile.tokens != best->tokens) continue;
    TileDeal deal = best->deal;
    deal.tile_index = static_cast<int>(i);
    if (deal.blocks <= family.tiles[i].tile.blocks) return deal;
  }
  return {};
}

const TunedTiles& built_in_tuned_tiles() {
  static const TunedTiles tiles =
      TunedTiles::parse(tuned_tiles_h200(), "the built-in tiles of the H200");
  return tiles;
}

}  // namespace halley::cuda
