// The ring of stages in shared memory: whose turn it is to fill and to read one.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "halley/cuda/hopper_tile/tile_arguments.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::cuda {

/// A thread's place among the consumers.
struct TileThread {
  int thread = 0;     // of kTileConsumers
  int warpgroup = 0;  // 0 or 1
  int in_warpgroup = 0;
  int warp = 0;  // of the warpgroup
  int lane = 0;
  __device__ int row() const { return lane / 4; }          // g of fragments
  __device__ int column_pair() const { return lane % 4; }  // c of fragments
};
__device__ __forceinline__ TileThread tile_thread() {
  const int thread = static_cast<int>(threadIdx.x);
  return {thread, thread / 128, thread % 128, thread % 128 / 32, thread % 32};
}

/// Addresses of shared memory.
struct TileRing {
  uint32_t base = 0;  // a multiple of kTileAlignment

  __device__ uint32_t stage(const TileArguments& args, int stage) const {
    return base + static_cast<uint32_t>(stage * args.stage_bytes);
  }
  /// Of part `index` of all stages: stage * parts of a stage + part.
  __device__ uint32_t full(const TileArguments& args, int index) const {
    return base + static_cast<uint32_t>(args.shared.barriers + index * 8);
  }
  __device__ uint32_t empty(const TileArguments& args, int index) const {
    return full(args, index + args.shared.num_barriers);
  }
};

/// A barrier of all threads of the cluster, in any order of a warp's threads. Behind it what they
/// wrote before is there.
__device__ __forceinline__ void sync_threads_of_cluster() {
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
}

/// One warp, whose lanes may then copy.
__device__ __forceinline__ void init_tile_ring(const TileArguments& args, const TileRing& ring) {
  for (int part = static_cast<int>(threadIdx.x % 32); part < args.shared.num_barriers; part += 32) {
    ptx::mbarrier_init(ring.full(args, part), 1);
    ptx::mbarrier_init(ring.empty(args, part), kTileConsumers / 32);
  }
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

/// One warp: has read a part of a stage.
__device__ __forceinline__ void release_part(const TileArguments& args, const TileRing& ring,
                                             int lane, int index) {
  __syncwarp();
  if (lane == 0) ptx::mbarrier_arrive(ring.empty(args, index));
}

/// Where the block is, and its ring. Where inputs are split, blocks of a cluster share a tile.
struct TileBlock {
  TileRing ring;
  int index = 0;  // of the blocks, or of the clusters
  int part = 0;   // of the tile's inputs, where they are split

  __device__ __forceinline__ TileSegment first(const TileArguments& args) const {
    if (args.split == 1) return first_segment(args.schedule, index);
    const int begin = tile_part_begin(args.schedule.num_chunks, args.split, part);
    const int end = tile_part_begin(args.schedule.num_chunks, args.split, part + 1);
    return {index, begin, end - begin};
  }
  __device__ __forceinline__ TileSegment next(const TileArguments& args,
                                              const TileSegment& segment) const {
    if (args.split == 1) return next_segment(args.schedule, index, segment);
    return {};
  }
};

/// Whose ring is not made yet.
__device__ __forceinline__ TileBlock tile_block(const TileArguments& args,
                                                const void* shared_memory) {
  TileBlock block;
  block.ring.base = (ptx::cvta_to_shared(shared_memory) + kTileAlignment - 1) &
                    ~static_cast<uint32_t>(kTileAlignment - 1);
  block.index = static_cast<int>(blockIdx.x) / args.split;
  block.part = static_cast<int>(blockIdx.x) % args.split;
  return block;
}

}  // namespace halley::cuda
