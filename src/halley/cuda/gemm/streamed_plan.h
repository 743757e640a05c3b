// Tiles of products whose weights stream through shared memory: which block computes which outputs
// of which inputs. Pure functions of the shape and the device.
#pragma once

#include <array>
#include <cstdint>

#include "halley/core/dtype.h"

namespace halley::cuda {

inline constexpr int kStreamedRowsMax = 64;
/// Inputs are copied, and multiplied, in chunks of 128 bytes of a row.
inline constexpr int kStreamedChunkBytes = 128;
inline constexpr int kStreamedStagesMax = 16;

struct StreamedShape {
  DType dtype = DType::kF16;  // of x and w
  int64_t M = 0, N = 0, K = 0;
  /// y[m,i] = f(x w[i]) * (x w[N / 2 + i]).
  bool is_gated = false;
};

struct StreamedDevice {
  int num_sms = 132;
  int shared_bytes_max = 232448;
};

/// Warpgroups, each of which has strips of 64 outputs, and boxes of weights that are copied at a
/// time. With a box for each warpgroup a box has up to 64 outputs, a strip; otherwise every
/// warpgroup has a strip of each box. Gated products have gates in the first box and the factors of
/// the same numbers in the second.
struct StreamedTile {
  int warpgroups = 1;
  int boxes = 1;
  int strips = 1;  // of a warpgroup
};
/// All that are compiled.
inline constexpr std::array<StreamedTile, 3> kStreamedTiles = {{{1, 1, 1}, {2, 2, 1}, {2, 2, 2}}};

/// Rows of a box that warpgroups multiply, whether they are there or not.
constexpr int strip_rows(const StreamedTile& tile) {
  return tile.warpgroups * tile.strips / tile.boxes * 64;
}

/// Threads of a block: warpgroups that multiply, a warp that copies weights and one for inputs.
constexpr int streamed_threads(const StreamedTile& tile) { return tile.warpgroups * 128 + 64; }

struct StreamedPlan {
  int tokens = 8;      // columns of the tensor cores' tile: 8, 16, 32 or 64
  int tile_index = 0;  // of kStreamedTiles
  int box_rows = 64;   // a multiple of 8, at most strip_rows()
  int num_tiles = 1;   // along the outputs
  /// Blocks of a cluster: they share the inputs of a tile. 1, 2 or 4; more than one only where
  /// clusters have one tile each.
  int split = 1;
  int num_clusters = 1;  // each takes every num_clusters-th tile
  int stage_chunks = 1;  // chunks of inputs that are copied at a time
  int num_stages = 2;
  int num_steps = 1;  // stages of all inputs
  /// Stages of weights that are copied before earlier kernels are done. Many of them would stand in
  /// the way of the first inputs.
  int early_stages = 2;

  const StreamedTile& tile() const { return kStreamedTiles[static_cast<size_t>(tile_index)]; }
  int tile_outputs() const { return tile().boxes * box_rows; }
  bool operator==(const StreamedPlan&) const = default;
};

/// Offsets in bytes from the first multiple of 1024 on; copies of weights begin at 0.
struct StreamedShared {
  int w_stage_bytes = 0;
  int x_stage_bytes = 0;
  int inputs = 0;  // copies of x
  /// Sums of some tokens on their way to y, [token][output]: over the ring where a block has one
  /// tile alone. In clusters an array from each block, of the tokens that this block writes.
  int staging = 0;
  int staging_pitch = 0;  // elements from a token to the next
  int staged_tokens = 0;
  int token_scales = 0;   // [token][scale, sum of codes]
  int output_scales = 0;  // [scale, offset, bias][output]
  int barriers = 0;       // full ones, then empty ones
  int num_bytes = 0;      // alignment of the start included
};
StreamedShared streamed_shared(const StreamedPlan& plan);

/// What a plan is made of; the rest follows.
struct StreamedChoice {
  int tile_index = 0;
  int split = 1;
  /// Tiles that each cluster takes, one after the other.
  int rounds = 1;
  int stage_chunks = 1;
  /// The most shared memory: half of an SM's lets the next kernel's blocks begin.
  int shared_bytes = 0;
  /// About so many bytes of weights are copied before earlier kernels are done.
  int early_bytes = 64 << 10;
};

/// Whether the choice can be made for the shape: boxes are high enough, clusters of several blocks
/// have one tile, every block has as many inputs as a stage, and two stages fit.
bool can_be_streamed(const StreamedShape& shape, const StreamedDevice& device,
                     const StreamedChoice& choice);
StreamedPlan streamed_plan_of(const StreamedShape& shape, const StreamedDevice& device,
                              const StreamedChoice& choice);

/// The measured choice (find_tuned_plan()) where there is one, else a rule's. Requires 1 <= M <=
/// kStreamedRowsMax and N, K >= 1.
StreamedChoice choose_streamed(const StreamedShape& shape, const StreamedDevice& device);
StreamedPlan plan_streamed(const StreamedShape& shape, const StreamedDevice& device);

}  // namespace halley::cuda
