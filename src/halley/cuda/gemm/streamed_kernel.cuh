// The kernel of products with streamed weights, and its launches for one type of codes or numbers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/base/check.h"
#include "halley/cuda/gemm/streamed_arguments.h"
#include "halley/cuda/gemm/streamed_epilogue.cuh"
#include "halley/cuda/gemm/streamed_ring.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/wgmma.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

/// The products of one tile: a warpgroup has 64 rows of its box, or of each.
template <class Type, int kTokens, StreamedTile kTile>
struct StreamedConsumer {
  using Sum = typename Type::Accumulator;
  static constexpr int kStrips = kTile.strips;
  using Sums = Sum[kStrips][kTokens / 2];
  /// Sums of e4m3 in the tensor cores keep few bits: they are added to others in f32.
  static constexpr bool kIsPromoted = std::is_same_v<Type, ptx::WgmmaE4m3>;
  static constexpr int kChunkSteps = kStreamedChunkBytes / 32;

  /// Rows of 128 bytes, eight of them 1024 bytes from the next, swizzled by 128 bytes (PTX ISA,
  /// "Matrix Descriptor Format").
  static constexpr uint64_t kDescriptor =
      uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16;
  static __device__ __forceinline__ uint64_t descriptor_of(uint32_t address) {
    return kDescriptor | (address & 0x3FFFFu) >> 4;
  }

  /// Queues the products of one chunk.
  static __device__ __forceinline__ void multiply_chunk(const StreamedArguments& args, uint64_t w,
                                                        uint64_t x, int keeps, Sums& sums) {
    const uint64_t box = static_cast<uint64_t>(args.shared.w_stage_bytes / 2) >> 4;
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
        ptx::wgmma_ss<Type>(sums[i], w + i * box + step * 2, x + step * 2, step == 0 ? keeps : 1);
      }
    }
  }

  static __device__ __forceinline__ void release(const StreamedRing& ring, int stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ring.empty(stage));
  }

  /// Sums over num_steps >= 1 stages, from *place on.
  static __device__ __forceinline__ void run(const StreamedArguments& args,
                                             const StreamedRing& ring, int num_steps,
                                             ptx::PipelineState* place, Sums& sums) {
    const uint64_t w_chunk = static_cast<uint64_t>(args.plan.box_rows * kStreamedChunkBytes) >> 4;
    constexpr uint64_t kInputChunk = kTokens * kStreamedChunkBytes >> 4;
    const uint32_t to_strip = threadIdx.x / 128 *
                              (kTile.boxes > kStrips ? args.shared.w_stage_bytes / kTile.boxes
                                                     : 64 * kStreamedChunkBytes);
    ptx::PipelineState stage = *place;
    if constexpr (kIsPromoted) {
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
#pragma unroll
        for (int e = 0; e < kTokens / 2; ++e) sums[i][e] = 0;
      }
#pragma unroll 1
      for (int step = 0; step < num_steps; ++step) {
        ptx::mbarrier_wait_parity(ring.full(stage.index), stage.parity);
        uint64_t w = descriptor_of(ring.weights(stage.index) + to_strip);
        uint64_t x = descriptor_of(ring.inputs(stage.index));
#pragma unroll 1
        for (int chunk = 0; chunk < args.plan.stage_chunks; chunk += 2) {
          Sums some;
          ptx::wgmma_fence();
          multiply_chunk(args, w, x, 0, some);
          multiply_chunk(args, w + w_chunk, x + kInputChunk, 1, some);
          ptx::wgmma_commit_group();
          ptx::wgmma_wait_group<0>();
#pragma unroll
          for (int i = 0; i < kStrips; ++i) {
#pragma unroll
            for (int e = 0; e < kTokens / 2; ++e) sums[i][e] += some[i][e];
          }
          w += 2 * w_chunk;
          x += 2 * kInputChunk;
        }
        release(ring, stage.index);
        stage.advance(ring.num_stages);
      }
    } else {
      // One loop over all chunks, once in the code: otherwise ptxas waits for products in between.
      const int num_chunks = num_steps * args.plan.stage_chunks;
      int in_stage = 0, previous = 0;
      uint64_t w = 0, x = 0;
#pragma unroll 1
      for (int chunk = 0; chunk < num_chunks; ++chunk) {
        if (in_stage == 0) {
          ptx::mbarrier_wait_parity(ring.full(stage.index), stage.parity);
          w = descriptor_of(ring.weights(stage.index) + to_strip);
          x = descriptor_of(ring.inputs(stage.index));
        }
        ptx::wgmma_fence();
        multiply_chunk(args, w, x, chunk > 0 ? 1 : 0, sums);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();
        if (in_stage == 0 && chunk > 0) release(ring, previous);
        w += w_chunk;
        x += kInputChunk;
        if (++in_stage == args.plan.stage_chunks) {
          in_stage = 0;
          previous = stage.index;
          stage.advance(ring.num_stages);
        }
      }
      ptx::wgmma_wait_group<0>();
      release(ring, previous);
    }
    *place = stage;
  }
};

template <class Type, int kTokens, int kTileIndex>
__global__ void __launch_bounds__(streamed_threads(kStreamedTiles[kTileIndex]),
                                  kTokens == 64 && kTileIndex == 2 ? 1 : 2)
    streamed_kernel(const __grid_constant__ CUtensorMap w_map,
                    const __grid_constant__ CUtensorMap x_map,
                    const __grid_constant__ StreamedArguments args) {
  constexpr StreamedTile kTile = kStreamedTiles[kTileIndex];
  constexpr int kConsumers = kTile.warpgroups * 128;
  using Consumer = StreamedConsumer<Type, kTokens, kTile>;
  using Epilogue = StreamedEpilogue<typename Type::Accumulator, kTokens, kTile>;
  extern __shared__ uint4 shared_memory[];
  StreamedRing ring;
  ring.base = (ptx::cvta_to_shared(shared_memory) + 1023) & ~1023u;
  ring.set(args);
  const int cluster = static_cast<int>(blockIdx.x) / args.plan.split;
  const int rank = static_cast<int>(blockIdx.x) % args.plan.split;
  const int first_step = args.plan.num_steps * rank / args.plan.split;
  const int num_steps = args.plan.num_steps * (rank + 1) / args.plan.split - first_step;

  if (threadIdx.x == kConsumers) init_ring<kConsumers / 32>(ring);
  __syncthreads();
  if (args.plan.split > 1) ptx::barrier_cluster_arrive_aligned();  // this block has begun
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) {
      copy_streamed_weights<kTile.boxes>(w_map, args, ring, cluster, first_step, num_steps);
      // Not earlier: blocks of the next kernel would take this one's share of the bandwidth.
      ptx::griddepcontrol_launch_dependents();
    } else if (threadIdx.x == kConsumers + 32) {
      ptx::griddepcontrol_wait();
      copy_streamed_inputs(x_map, args, ring, cluster, first_step, num_steps);
    }
    if (args.plan.split > 1) {
      __syncwarp();
      ptx::barrier_cluster_wait_aligned();
      ptx::barrier_cluster_arrive_aligned();
      ptx::barrier_cluster_wait_aligned();
    }
    return;
  }
  Epilogue epilogue(args, ring.base, rank);
  epilogue.stage_output_scales(cluster);
  ptx::griddepcontrol_wait();
  epilogue.stage_token_scales();
  ptx::PipelineState stage;
  for (int tile = cluster; tile < args.plan.num_tiles; tile += args.plan.num_clusters) {
    if (tile != cluster) epilogue.stage_output_scales(tile);
    typename Consumer::Sums sums;
    Consumer::run(args, ring, num_steps, &stage, sums);
    epilogue.write(tile, sums);
  }
}

/// Queues the instance with these tokens.
template <class Type, int kTokens>
void launch_streamed_tokens(const CudaContext& context, const CUtensorMap& w_map,
                            const CUtensorMap& x_map, const StreamedArguments& args) {
  const auto launch = [&](auto kernel) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared),
               "shared memory of streamed_gemm");
    launch_kernel(context, "streamed_gemm",
                  {.grid = dim3(static_cast<unsigned>(args.plan.num_clusters * args.plan.split)),
                   .block = dim3(static_cast<unsigned>(streamed_threads(args.plan.tile()))),
                   .shared_bytes = static_cast<size_t>(args.shared.num_bytes),
                   .cluster_size = static_cast<unsigned>(args.plan.split)},
                  kernel, w_map, x_map, args);
  };
  if (args.plan.tile_index == 0) return launch(streamed_kernel<Type, kTokens, 0>);
  if (args.plan.tile_index == 1) return launch(streamed_kernel<Type, kTokens, 1>);
  launch(streamed_kernel<Type, kTokens, 2>);
}

/// See streamed_arguments.h.
template <class Type>
void launch_streamed_of(const CudaContext& context, const CUtensorMap& w_map,
                        const CUtensorMap& x_map, const StreamedArguments& args) {
  switch (args.plan.tokens) {
    case 8:
      return launch_streamed_tokens<Type, 8>(context, w_map, x_map, args);
    case 16:
      return launch_streamed_tokens<Type, 16>(context, w_map, x_map, args);
    case 32:
      return launch_streamed_tokens<Type, 32>(context, w_map, x_map, args);
    default:
      HALLEY_CHECK(args.plan.tokens == 64, args.plan.tokens);
      return launch_streamed_tokens<Type, 64>(context, w_map, x_map, args);
  }
}

}  // namespace halley::cuda
