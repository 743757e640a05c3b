// The W4Ax product: y[m,n] = sum over blocks b of x_scale[m,b] w_scale[n,b] sum over k in b of
// x[m,k] w[n,k], the inner sums exact.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_kernel.cuh"
#include "halley/cuda/hopper_tile/tile_launch.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_consumer.cuh"

namespace halley::cuda {

template <int kTokens, class Consumer>
__global__ void __launch_bounds__(kTileThreads, w4ax_blocks(kTokens))
    w4ax_kernel(const __grid_constant__ CUtensorMap x_map,
                const __grid_constant__ W4axArguments args) {
  extern __shared__ uint4 shared_memory[];
  if (threadIdx.x == kTileConsumers + 32) ptx::prefetch_tensormap(&x_map);
  run_tile_block<kTokens, w4ax_blocks(kTokens), Consumer>(
      args.tile, shared_memory,
      [&](const TileBlock& block) { produce_w4ax_weights<kTokens>(args, block); },
      [&](const TileBlock& block) { produce_w4ax_tokens<kTokens>(x_map, args, block); });
}

template <int kTokens, class Consumer>
void launch_w4ax_by(const CudaContext& context, const CUtensorMap& x_map,
                    const W4axArguments& args) {
  launch_tile_kernel(context, "w4ax_gemm", args.tile, w4ax_kernel<kTokens, Consumer>, x_map, args);
}

template <int kTokens>
void launch_w4ax(const CudaContext& context, const CUtensorMap& x_map, const W4axArguments& args) {
  launch_w4ax_by<kTokens, W4axConsumer<kTokens>>(context, x_map, args);
}

}  // namespace halley::cuda
