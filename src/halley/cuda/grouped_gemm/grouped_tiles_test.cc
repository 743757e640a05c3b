// Tiles of a grouped GEMM: every piece of the result is one tile's.
#include "halley/cuda/grouped_gemm/grouped_tiles.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

TEST(GroupedTiles, EveryPieceOfTheResultIsOneTiles) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const int num_experts = 1 + static_cast<int>(random() % 130);
    const int num_outputs = 1 + static_cast<int>(random() % 300);
    const bool is_gated = random() % 2 == 0;
    const GroupedGrid grid = {.num_experts = num_experts,
                              .tile_rows = 16 << random() % 4,
                              .tile_outputs = is_gated ? 32 : 64,
                              .output_tiles = num_output_tiles(num_outputs, is_gated, 64)};
    std::vector<int32_t> begin = {0}, row_tiles = {0};
    for (int e = 0; e < num_experts; ++e) {
      const int size = random() % 3 == 0 ? 0 : static_cast<int>(random() % 200);
      begin.push_back(begin.back() + size);
      row_tiles.push_back(row_tiles.back() + num_row_tiles(size, grid.tile_rows));
    }
    std::set<std::array<int, 3>> seen;
    int64_t covered = 0;
    for (int i = 0; i < row_tiles.back() * grid.output_tiles; ++i) {
      const GroupedTile tile = find_tile(grid, begin.data(), row_tiles.data(), i);
      const auto e = static_cast<size_t>(tile.expert);
      ASSERT_TRUE(seen.insert({tile.expert, tile.first_slot, tile.first_output}).second);
      ASSERT_LT(tile.first_output, num_outputs);
      ASSERT_GE(tile.num_slots, 1);
      ASSERT_LE(tile.num_slots, grid.tile_rows);
      ASSERT_EQ((tile.first_slot - begin[e]) % grid.tile_rows, 0);
      ASSERT_LE(tile.first_slot + tile.num_slots, begin[e + 1]);
      covered +=
          int64_t{tile.num_slots} * std::min(grid.tile_outputs, num_outputs - tile.first_output);
    }
    EXPECT_EQ(covered, int64_t{begin.back()} * num_outputs);
  }
}

}  // namespace
}  // namespace halley::cuda
