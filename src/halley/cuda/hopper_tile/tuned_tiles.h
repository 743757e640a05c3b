// Measured plans of products in tiles: what products run with where the rule's estimates err.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/cuda/hopper_tile/tile_plan.h"

namespace halley::cuda {

/// The best deal that was measured for up to `rows` rows of one layer.
struct TunedTile {
  std::string family;
  int64_t N = 0, K = 0;
  int64_t rows = 0;  // M of the measurement
  int tokens = 0;    // of the tile
  TileDeal deal = {};
  double microseconds = 0;
};

/// A line of the table.
std::string to_json(const TunedTile& tile);

/// That of a plan that was measured.
TunedTile tuned_tile(const TileFamily& family, const ProductShape& shape, const TilePlan& plan,
                     double microseconds);

/// What is timed: the plan that products take, or all among which the fastest is (of tiles whose
/// tokens are not far from M, those whose estimates are not far from the least).
std::vector<TilePlan> timed_plans(const TileFamily& family, const ProductShape& shape,
                                  const CudaDeviceInfo& device, bool has_all_tiles);

/// A table of one device. Its JSON:
///
///     {"format": "halley-tuned-tiles", "version": 1, "device": "NVIDIA H200",
///      "multiprocessors": 132,
///      "plans": [{"family": "nested", "N": 6144, "K": 4096, "rows": 64, "tokens": 64,
///                 "blocks_a_multiprocessor": 1, "shared_rounds": 0, "parts": 0, "split": 2,
///                 "us": 15.25}]}
class TunedTiles {
 public:
  /// Throws InputError, as "<where>: plans[3]: ...", where members are missing or out of range.
  static TunedTiles parse(std::string_view text, const std::string& where);

  int num_sms() const { return num_sms_; }
  const std::vector<TunedTile>& plans() const { return plans_; }

  /// The deal of the fewest rows that are not below M, and with more than 16 not twice as many.
  /// None: a rule chooses.
  std::optional<TileDeal> find(const TileFamily& family, const ProductShape& shape) const;

 private:
  int num_sms_ = 0;
  std::vector<TunedTile> plans_;
};

/// Measured on an H200: tuned_h200.json of this folder.
const TunedTiles& built_in_tuned_tiles();

}  // namespace halley::cuda
