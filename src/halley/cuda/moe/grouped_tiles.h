// Which tile of a grouped product is whose, and what lies where in one: for the host and the device
// alike.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halley::cuda {

/// Inputs of a stage of the pipeline: 128 bytes of a row of shared memory.
inline constexpr int kGroupedInputs = 64;
/// 16 bytes: what one copy brings and one lane names to ldmatrix.
inline constexpr int kCopyInputs = 8;
inline constexpr int kRowChunks = kGroupedInputs / kCopyInputs;
inline constexpr int kStageRowBytes = kGroupedInputs * 2;

/// A block's warps and what each multiplies: kRowFragments times 16 slots, kOutputPairs times 16
/// rows of the weight.
template <int kRowWarpsOf, int kOutputWarpsOf, int kRowFragmentsOf, int kOutputPairsOf,
          int kStagesOf>
struct GroupedShape {
  static constexpr int kRowWarps = kRowWarpsOf, kOutputWarps = kOutputWarpsOf;
  static constexpr int kRowFragments = kRowFragmentsOf, kOutputPairs = kOutputPairsOf;
  static constexpr int kStages = kStagesOf;
  static constexpr int kThreads = 32 * kRowWarps * kOutputWarps;
  static constexpr int kRows = 16 * kRowWarps * kRowFragments;          // slots of a tile
  static constexpr int kWeightRows = 16 * kOutputWarps * kOutputPairs;  // of a tile
  static constexpr int kCopyRows = kThreads / kRowChunks;  // that all threads copy at a time
  static constexpr int kXCopies = kRows / kCopyRows;       // of a thread, for a stage
  static constexpr int kWeightCopies = kWeightRows / kCopyRows;
  static constexpr int kXBytes = kRows * kStageRowBytes;
  static constexpr int kStageBytes = kXBytes + kWeightRows * kStageRowBytes;
  /// Blocks that share an SM.
  static constexpr int kBlocks = 2;
  static_assert(kRows % kCopyRows == 0 && kWeightRows % kCopyRows == 0 && kCopyRows % 16 == 0);
};

/// Few slots an expert: many stages in flight, so that the weights come at the memory's speed.
using NarrowShape = GroupedShape<1, 4, 2, 1, 8>;
/// Many: as much use of what is in shared memory as registers allow.
using WideShape = GroupedShape<2, 2, 4, 4, 3>;

/// The most slots an expert may have on average for the narrow shape, whose tiles of 32 then still
/// hold nearly all groups: a weight is read once.
inline constexpr int64_t kNarrowSlotsMax = 24;

struct GroupedTile {
  int expert = 0;
  int first_slot = 0, num_slots = 0;
  int first_output = 0;
};

/// Output tiles of a product.
constexpr int num_output_tiles(int num_outputs, bool is_gated, int tile_weight_rows) {
  const int tile_outputs = is_gated ? tile_weight_rows / 2 : tile_weight_rows;
  return (num_outputs + tile_outputs - 1) / tile_outputs;
}

/// Row tiles of one expert.
constexpr int num_row_tiles(int num_slots, int tile_rows) {
  return (num_slots + tile_rows - 1) / tile_rows;
}

/// What all tiles of a product have in common.
struct GroupedGrid {
  int num_experts = 0;
  int tile_rows = 0, tile_outputs = 0;
  int output_tiles = 0;
};

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

/// Where 16 bytes of a stage's row lie; the chunks of eight rows are spread over all banks.
constexpr int stage_offset(int row, int chunk) {
  return row * kStageRowBytes + ((chunk ^ (row % 8)) * 16);
}

/// Row `row` of a tile's weights: an output of the tile, and of gated products whether it is the
/// gate's (0) or the other factor's (1). Eights alternate, so that the thread that has the one has
/// the other.
constexpr int weight_half(int row, bool is_gated) { return is_gated ? row / 8 % 2 : 0; }
constexpr int weight_output(int row, bool is_gated) {
  return is_gated ? row / 16 * 8 + row % 8 : row;
}

/// What a thread copies of a stage: the chunk `copy_chunk` of rows copy_row<Shape>(thread, i).
constexpr int copy_chunk(int thread) { return thread % kRowChunks; }
template <typename Shape>
constexpr int copy_row(int thread, int i) {
  return thread / kRowChunks + i * Shape::kCopyRows;
}

/// A thread's rows of a weight: of one half, outputs first_output + i * step for i < count.
struct WeightRows {
  int half = 0;
  int first_output = 0, step = 0, count = 0;
};
template <typename Shape>
constexpr WeightRows weight_rows_of(int thread, const GroupedTile& tile, int num_outputs,
                                    bool is_gated) {
  const int row = copy_row<Shape>(thread, 0);
  WeightRows rows;
  rows.half = weight_half(row, is_gated);
  rows.first_output = tile.first_output + weight_output(row, is_gated);
  rows.step = weight_output(Shape::kCopyRows, is_gated);
  const int left = num_outputs - rows.first_output;
  rows.count = left <= 0 ? 0 : (left + rows.step - 1) / rows.step;
  return rows;
}

/// The row and chunk that a lane names to ldmatrix for a 16 x 16 fragment of x (mma operand a).
constexpr int x_lane_row(int lane) { return lane % 16; }
constexpr int x_lane_chunk(int lane) { return lane / 16; }
/// The same for 16 rows of the weight: operands b of two products of 8 outputs.
constexpr int weight_lane_row(int lane) { return lane / 16 * 8 + lane % 8; }
constexpr int weight_lane_chunk(int lane) { return lane / 8 % 2; }

/// A thread's part of a tile: what its warp multiplies, and which sums of it the thread has.
template <typename Shape>
struct ThreadPlace {
  int lane = 0;
  int first_row = 0, first_weight_row = 0;  // of the warp

  constexpr explicit ThreadPlace(int thread)
      : lane(thread % 32),
        first_row(thread / 32 / Shape::kOutputWarps * (16 * Shape::kRowFragments)),
        first_weight_row(thread / 32 % Shape::kOutputWarps * (16 * Shape::kOutputPairs)) {}

  /// Fragments of the warp that have slots.
  constexpr int num_fragments(int num_slots) const {
    const int count = (num_slots - first_row + 15) / 16;
    return num_slots <= first_row ? 0 : count < Shape::kRowFragments ? count : Shape::kRowFragments;
  }
  /// Row of a tile of sums 2 (part % 2) and the next, of row fragment part / 2.
  constexpr int row_of_part(int part) const { return first_row + 8 * part + lane / 4; }
  /// Output of a tile of these two sums in the first of a pair's two products; of a product without
  /// halves the second has outputs 8 higher.
  constexpr int output_of_pair(int pair, bool is_gated) const {
    return weight_output(first_weight_row + 16 * pair, is_gated) + 2 * (lane % 4);
  }
};

}  // namespace halley::cuda
