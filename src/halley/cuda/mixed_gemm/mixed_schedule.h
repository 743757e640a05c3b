// Which block computes which inputs of which tile. Pure functions of the host and the device.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// Without givers: the blocks of a cluster share each of its tiles, every one has a part of the
/// inputs, and clusters take tiles in turn.
///
/// With givers, the blocks below num_givers, there are no clusters. Every block has as many whole
/// tiles as the others. Every other block is an owner: last of all it does the first own_chunks of
/// one of the tiles that are left. The rest of those tiles givers have in equal parts: they do it
/// first of all, and leave the sums in memory for the tile's owner, so that they wait for nobody.
struct MixedSchedule {
  int num_blocks = 0;  // a multiple of num_ranks
  int num_tiles = 0;   // with givers: whole ones for every block, and one for every owner
  int num_chunks = 0;  // of 128 inputs, of a tile; num_ranks at least
  int num_ranks = 1;   // blocks of a cluster
  int num_givers = 0;
  int own_chunks = 0;  // above 0 and below num_chunks where there are givers
  /// Of blocks 2 i and 2 i + 1, which then are on neighbouring SMs: what both read at
  /// the same time comes to them once. They share nothing else.
  bool has_pairs = false;
};

/// A number in equal parts; the first `rest` ones are longer by one.
struct MixedParts {
  int each = 0;
  int rest = 0;
};
constexpr MixedParts equal_parts(int total, int num_parts) {
  return {total / num_parts, total % num_parts};
}
/// Where part `index` begins.
constexpr int part_begin(const MixedParts& parts, int index) {
  return parts.each * index + (index < parts.rest ? index : parts.rest);
}
constexpr int part_begin(int total, int num_parts, int index) {
  return part_begin(equal_parts(total, num_parts), index);
}
/// The part that `position` lies in; none may be empty.
constexpr int part_at(const MixedParts& parts, int position) {
  const int longer = parts.rest * (parts.each + 1);
  return position < longer ? position / (parts.each + 1)
                           : parts.rest + (position - longer) / parts.each;
}

/// Tiles that have an owner and givers: the last ones.
constexpr int num_shared_tiles(const MixedSchedule& schedule) {
  return schedule.num_givers > 0 ? schedule.num_blocks - schedule.num_givers : 0;
}
constexpr int num_whole_tiles(const MixedSchedule& schedule) {
  return schedule.num_tiles - num_shared_tiles(schedule);
}
/// Of each of those tiles.
constexpr int given_chunks(const MixedSchedule& schedule) {
  return schedule.num_chunks - schedule.own_chunks;
}
/// Of all of them, one behind the other.
constexpr int num_left_chunks(const MixedSchedule& schedule) {
  return num_shared_tiles(schedule) * given_chunks(schedule);
}
/// Slots for the sums that givers leave.
constexpr int num_slots(const MixedSchedule& schedule) {
  return schedule.num_givers > 0 ? schedule.num_blocks : 0;
}

/// A schedule with what it takes divisions to know: a device takes long for them.
struct DealtSchedule : MixedSchedule {
  int num_clusters = 0;
  MixedParts of_ranks;   // num_chunks
  MixedParts of_givers;  // num_left_chunks()
  int tile_givers = 0;   // of every shared tile, where they are as many of each

  DealtSchedule() = default;
  constexpr explicit DealtSchedule(const MixedSchedule& schedule)
      : MixedSchedule(schedule),
        num_clusters(num_blocks / num_ranks),
        of_ranks(equal_parts(num_chunks, num_ranks)) {
    if (num_givers == 0) return;
    of_givers = equal_parts(num_left_chunks(schedule), num_givers);
    const int shared = num_shared_tiles(schedule);
    if (num_givers % shared == 0) tile_givers = num_givers / shared;
  }
};

/// The place of a block in the grid: of its cluster, and in it.
struct MixedBlock {
  int cluster = 0;  // without clusters: the block
  int rank = 0;
};

/// Consecutive chunks of one tile. None where num_chunks is zero: the block is done.
struct MixedSegment {
  int tile = 0;
  int begin = 0;
  int num_chunks = 0;
};

/// `tile` if it is a whole one, else what the block has of the shared ones as an owner.
constexpr MixedSegment tile_segment(const DealtSchedule& schedule, int block, int tile) {
  if (tile < num_whole_tiles(schedule)) return {tile, 0, schedule.num_chunks};
  const int owner = block - schedule.num_givers;
  return {num_whole_tiles(schedule) + owner, 0, owner >= 0 ? schedule.own_chunks : 0};
}

/// Which part of the left chunks a giver has. Neighbours have different tiles, and if they can the
/// same inputs of them at the same time.
constexpr int giver_part(const DealtSchedule& schedule, int block) {
  if (schedule.tile_givers <= 1) return block;
  const int shared = num_shared_tiles(schedule);
  return block % shared * schedule.tile_givers + block / shared;
}

/// kHasGivers: of the schedule.
template <bool kHasGivers>
constexpr MixedSegment first_segment(const DealtSchedule& schedule, const MixedBlock& block) {
  if constexpr (!kHasGivers) {
    const int begin = part_begin(schedule.of_ranks, block.rank);
    const int end = part_begin(schedule.of_ranks, block.rank + 1);
    return {block.cluster, begin, block.cluster < schedule.num_tiles ? end - begin : 0};
  }
  if (block.cluster >= schedule.num_givers) {
    return tile_segment(schedule, block.cluster, block.cluster);
  }
  const int part = giver_part(schedule, block.cluster);
  const int begin = part_begin(schedule.of_givers, part);
  const int end = part_begin(schedule.of_givers, part + 1);
  const int each = given_chunks(schedule), tile = begin / each, place = begin - tile * each;
  return {num_whole_tiles(schedule) + tile, schedule.own_chunks + place,
          end - begin < each - place ? end - begin : each - place};
}

/// With givers: the shared tile that a block finishes, last of all; -1 where there is none.
constexpr int owned_tile(const DealtSchedule& schedule, const MixedBlock& block) {
  if (block.cluster < schedule.num_givers) return -1;
  return num_whole_tiles(schedule) + block.cluster - schedule.num_givers;
}

/// Whether a block leaves the sums of a segment to the tile's owner.
constexpr bool is_givers(const MixedSchedule& schedule, const MixedSegment& segment) {
  return schedule.num_givers > 0 && segment.begin > 0;
}
/// Whether it adds to them what givers have left.
constexpr bool is_owners(const MixedSchedule& schedule, const MixedSegment& segment) {
  return schedule.num_givers > 0 && segment.begin == 0 && segment.num_chunks < schedule.num_chunks;
}

template <bool kHasGivers>
constexpr MixedSegment next_segment(const DealtSchedule& schedule, const MixedBlock& block,
                                    const MixedSegment& segment) {
  if constexpr (!kHasGivers) {
    const int tile = segment.tile + schedule.num_clusters;
    return {tile, segment.begin, tile < schedule.num_tiles ? segment.num_chunks : 0};
  }
  if (is_givers(schedule, segment)) {
    // A giver's part of a tile ends where the tile does, or is its last.
    const int shared = segment.tile + 1 - num_whole_tiles(schedule);
    const int part = giver_part(schedule, block.cluster);
    const int left = part_begin(schedule.of_givers, part + 1) - shared * given_chunks(schedule);
    if (left <= 0) return tile_segment(schedule, block.cluster, block.cluster);
    return {segment.tile + 1, schedule.own_chunks,
            left < given_chunks(schedule) ? left : given_chunks(schedule)};
  }
  if (is_owners(schedule, segment)) return {};
  return tile_segment(schedule, block.cluster, segment.tile + schedule.num_blocks);
}

/// The sums of a tile lie in one slot for each of its givers, one slot behind the other.
struct MixedSlots {
  int first = 0;
  int count = 0;
};
/// That of one giver_part(): from one to the next the part or the tile is another one, or both.
constexpr int slot_of(const MixedSchedule& schedule, int part, int tile) {
  return tile - num_whole_tiles(schedule) + part;
}
constexpr MixedSlots slots_of(const DealtSchedule& schedule, int tile) {
  const int begin = (tile - num_whole_tiles(schedule)) * given_chunks(schedule);
  const int first = part_at(schedule.of_givers, begin);
  const int last = part_at(schedule.of_givers, begin + given_chunks(schedule) - 1);
  return {slot_of(schedule, first, tile), last - first + 1};
}

}  // namespace halley::cuda
