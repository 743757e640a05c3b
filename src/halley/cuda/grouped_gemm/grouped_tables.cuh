// The slots and tiles of a grouped GEMM in shared memory, by which CTAs find their tiles.
#pragma once

#include <cstdint>

#include "halley/cuda/grouped_gemm/grouped_tiles.h"

namespace halley::cuda {

struct SlotTables {
  int32_t* expert_begin;    // [E + 1]: slots
  int32_t* row_tile_begin;  // [E + 1]: tiles of `tile_rows` slots
};

/// By all threads, from expert_begin in device memory; complete behind the next barrier.
__device__ inline void fill_tables(const int32_t* expert_begin, int num_experts, int tile_rows,
                                   const SlotTables& tables) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int e = thread; e <= num_experts; e += threads) tables.expert_begin[e] = expert_begin[e];
  if (thread >= 32) return;
  // The first warp sums the tiles from what it reads itself.
  int before = 0;
  for (int first = 0; first < num_experts; first += 32) {
    const int e = first + thread;
    int tiles = 0;
    if (e < num_experts) tiles = num_row_tiles(expert_begin[e + 1] - expert_begin[e], tile_rows);
    int sum = tiles;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (thread >= step) sum += other;
    }
    if (e < num_experts) tables.row_tile_begin[e + 1] = before + sum;
    before += __shfl_sync(0xFFFFFFFFu, sum, 31);
  }
  if (thread == 0) tables.row_tile_begin[0] = 0;
}

}  // namespace halley::cuda
