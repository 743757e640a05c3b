// Queues a kernel whose blocks are those of run_tile_block().
#pragma once

#include <cuda_runtime_api.h>

#include "halley/cuda/hopper_tile/tile_arguments.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/shared_bytes.h"

namespace halley::cuda {

template <typename... Params, typename... Args>
void launch_tile_kernel(void (*kernel)(Params...), const TileArguments& tile, cudaStream_t stream,
                        const Args&... args) {
  raise_shared_bytes(kernel, tile.shared.num_bytes, "a product");
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(tile.split), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(tile.schedule.num_blocks * tile.split));
  config.blockDim = dim3(kTileThreads);
  config.dynamicSmemBytes = static_cast<size_t>(tile.shared.num_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = tile.starts_early ? 2 : 1;
  check_cuda(cudaLaunchKernelEx(&config, kernel, args...), "launch of a product");
}

}  // namespace halley::cuda
