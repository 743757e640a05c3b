// Which block computes which inputs of which tile. Pure functions of the host and the device.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// Blocks first take whole tiles in turn; the tiles that are left are shared. Either each of them
/// is cut into equal parts, one a block; or their chunks (inputs of a stage) form one row, of which
/// every block takes an equal part. Sums of a tile are added in the order of its blocks.
struct TileSchedule {
  int num_blocks = 0;
  int num_tiles = 0;
  int num_chunks = 0;   // of a tile, along K
  int whole_tiles = 0;  // the first tiles: a multiple of num_blocks, or all
  int parts = 0;        // of a shared tile, at least 2; 0: one row
};

/// Consecutive chunks of one tile. None where num_chunks is zero: the block is done.
struct TileSegment {
  int tile = 0;
  int begin = 0;
  int num_chunks = 0;
};

/// Chunks of all shared tiles. Fits: plans see to it.
constexpr int num_shared_chunks(const TileSchedule& schedule) {
  return (schedule.num_tiles - schedule.whole_tiles) * schedule.num_chunks;
}

/// Where part `index` of `num_parts` equal ones begins; the first ones are longer by one.
constexpr int tile_part_begin(int total, int num_parts, int index) {
  const int rest = total % num_parts;
  return total / num_parts * index + (index < rest ? index : rest);
}
/// The part that has place `place`.
constexpr int tile_part_of(int total, int num_parts, int place) {
  const int each = total / num_parts, rest = total % num_parts;
  const int long_parts = rest * (each + 1);
  return place < long_parts ? place / (each + 1) : rest + (place - long_parts) / each;
}

/// The first shared chunk of a block; that of num_blocks is the end, as that of blocks that have no
/// part.
constexpr int shared_begin(const TileSchedule& schedule, int block) {
  const int parts = schedule.parts, all = num_shared_chunks(schedule);
  if (parts == 0) return tile_part_begin(all, schedule.num_blocks, block);
  if (block / parts >= schedule.num_tiles - schedule.whole_tiles) return all;
  return block / parts * schedule.num_chunks +
         tile_part_begin(schedule.num_chunks, parts, block % parts);
}

/// The block that has a shared chunk.
constexpr int block_of_shared(const TileSchedule& schedule, int chunk) {
  const int parts = schedule.parts;
  if (parts == 0) return tile_part_of(num_shared_chunks(schedule), schedule.num_blocks, chunk);
  return chunk / schedule.num_chunks * parts +
         tile_part_of(schedule.num_chunks, parts, chunk % schedule.num_chunks);
}

constexpr TileSegment shared_segment(const TileSchedule& schedule, int begin, int end) {
  const int tile = begin / schedule.num_chunks;
  const int first = begin - tile * schedule.num_chunks;
  const int left = schedule.num_chunks - first;
  return {schedule.whole_tiles + tile, first, left < end - begin ? left : end - begin};
}

constexpr TileSegment first_segment(const TileSchedule& schedule, int block) {
  if (block < schedule.whole_tiles) return {block, 0, schedule.num_chunks};
  return shared_segment(schedule, shared_begin(schedule, block), shared_begin(schedule, block + 1));
}

constexpr TileSegment next_segment(const TileSchedule& schedule, int block,
                                   const TileSegment& segment) {
  if (segment.tile >= schedule.whole_tiles) {
    const int done = (segment.tile - schedule.whole_tiles) * schedule.num_chunks + segment.begin +
                     segment.num_chunks;
    return shared_segment(schedule, done, shared_begin(schedule, block + 1));
  }
  const int tile = segment.tile + schedule.num_blocks;
  if (tile < schedule.whole_tiles) return {tile, 0, schedule.num_chunks};
  return shared_segment(schedule, shared_begin(schedule, block), shared_begin(schedule, block + 1));
}

/// The blocks of a shared tile.
struct TileSharers {
  int first = 0;
  int count = 0;
};

constexpr TileSharers sharers_of(const TileSchedule& schedule, int tile) {
  const int begin = (tile - schedule.whole_tiles) * schedule.num_chunks;
  const int first = block_of_shared(schedule, begin);
  return {first, block_of_shared(schedule, begin + schedule.num_chunks - 1) - first + 1};
}

/// Where a block leaves its part of a shared tile: in one row each has at most two such tiles.
constexpr int partial_slot(const TileSchedule& schedule, int tile, int block) {
  const int begin = (tile - schedule.whole_tiles) * schedule.num_chunks;
  return 2 * block + (shared_begin(schedule, block) < begin ? 1 : 0);
}
constexpr int num_partial_slots(const TileSchedule& schedule) { return 2 * schedule.num_blocks; }

}  // namespace halley::cuda
