// Which block computes which inputs of which tile. Pure functions of the host and the device.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// The blocks of a cluster share each of its tiles: every one has a part of the inputs. Clusters
/// take tiles in turn.
struct MixedSchedule {
  int num_blocks = 0;  // a multiple of num_ranks
  int num_tiles = 0;
  int num_chunks = 0;  // of 128 inputs, of a tile; num_ranks at least
  int num_ranks = 1;   // blocks of a cluster
};

/// Where part `index` of `num_parts` equal ones begins; the first ones are longer by one.
constexpr int part_begin(int total, int num_parts, int index) {
  const int rest = total % num_parts;
  return total / num_parts * index + (index < rest ? index : rest);
}

/// Consecutive chunks of one tile. None where num_chunks is zero: the block is done.
struct MixedSegment {
  int tile = 0;
  int begin = 0;
  int num_chunks = 0;
};

/// Of block `rank` of a cluster.
constexpr MixedSegment first_segment(const MixedSchedule& schedule, int cluster, int rank) {
  const int begin = part_begin(schedule.num_chunks, schedule.num_ranks, rank);
  const int end = part_begin(schedule.num_chunks, schedule.num_ranks, rank + 1);
  return {cluster, begin, cluster < schedule.num_tiles ? end - begin : 0};
}

constexpr MixedSegment next_segment(const MixedSchedule& schedule, const MixedSegment& segment) {
  const int tile = segment.tile + schedule.num_blocks / schedule.num_ranks;
  return {tile, segment.begin, tile < schedule.num_tiles ? segment.num_chunks : 0};
}

}  // namespace halley::cuda
