// Which tile of a grouped GEMM is whose: for the host and the device alike.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// Slots of one expert by outputs.
struct GroupedTile {
  int expert = 0;
  int first_slot = 0, num_slots = 0;
  int first_output = 0;
};

/// Output tiles of a GEMM.
constexpr int num_output_tiles(int num_outputs, bool is_gated, int tile_weight_rows) {
  const int tile_outputs = is_gated ? tile_weight_rows / 2 : tile_weight_rows;
  return (num_outputs + tile_outputs - 1) / tile_outputs;
}

/// Row tiles of one expert.
constexpr int num_row_tiles(int num_slots, int tile_rows) {
  return (num_slots + tile_rows - 1) / tile_rows;
}

/// All tiles of a GEMM have it in common.
struct GroupedGrid {
  int num_experts = 0;
  int tile_rows = 0, tile_outputs = 0;
  int output_tiles = 0;
};

/// Bytes of expert_begin and row_tile_begin, as find_tile() has them.
constexpr int slot_table_bytes(int num_experts) {
  return 2 * (num_experts + 1) * int{sizeof(int32_t)};
}

/// Tiles are in the order of experts, then of outputs, then of rows, so that tiles that share a
/// part of a weight run at about the same time. expert_begin [E + 1]: slots; row_tile_begin
/// [E + 1]: row tiles of the experts before; tile < row_tile_begin[E] * output_tiles.
constexpr GroupedTile find_tile(const GroupedGrid& grid, const int32_t* expert_begin,
                                const int32_t* row_tile_begin, int tile) {
  const int target = tile / grid.output_tiles;
  // The last expert that begins at or before the target: the one that is not empty.
  int low = 0, high = grid.num_experts;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (row_tile_begin[middle] <= target ? low : high) = middle;
  }
  const int own = tile - row_tile_begin[low] * grid.output_tiles;
  const int row_tiles = row_tile_begin[low + 1] - row_tile_begin[low];
  GroupedTile found;
  found.expert = low;
  found.first_slot = expert_begin[low] + own % row_tiles * grid.tile_rows;
  const int left = expert_begin[low + 1] - found.first_slot;
  found.num_slots = left < grid.tile_rows ? left : grid.tile_rows;
  found.first_output = own / row_tiles * grid.tile_outputs;
  return found;
}

}  // namespace halley::cuda
