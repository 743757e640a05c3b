// The nested product: y[m,n] = sum over k of x[m,k] w[n,k], w in f16 from two planes of bytes.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_kernel.cuh"
#include "halley/cuda/hopper_tile/tile_launch.cuh"
#include "halley/cuda/nested_gemm/nested_consumer.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"

namespace halley::cuda {

template <int kTokens>
__global__ void __launch_bounds__(kTileThreads, 1)
    nested_kernel(const __grid_constant__ NestedMaps maps,
                  const __grid_constant__ NestedArguments args) {
  extern __shared__ uint4 shared_memory[];
  if (threadIdx.x == kTileConsumers + 32) {
    ptx::prefetch_tensormap(&maps.upper);
    ptx::prefetch_tensormap(&maps.x);
  }
  run_tile_block<kTokens, 1, NestedConsumer<kTokens>>(
      args.tile, shared_memory,
      [&](const TileBlock& block) { produce_planes<kTokens>(maps.upper, args, block); },
      [&](const TileBlock& block) { produce_tokens<kTokens>(maps.x, args.tile, block); });
}

template <int kTokens>
void launch_nested(const CudaContext& context, const NestedMaps& maps,
                   const NestedArguments& args) {
  launch_tile_kernel(context, "nested_gemm", args.tile, nested_kernel<kTokens>, maps, args);
}

}  // namespace halley::cuda
