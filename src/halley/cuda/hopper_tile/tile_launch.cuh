// Queues a kernel whose CTAs run run_tile_block().
#pragma once

#include <type_traits>

#include "halley/cuda/hopper_tile/tile_arguments.h"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

/// `what` names the kernel in messages.
template <typename... Parameters>
void launch_tile_kernel(const CudaContext& context, const char* what, const TileArguments& tile,
                        void (*kernel)(Parameters...),
                        const std::type_identity_t<Parameters>&... arguments) {
  launch_kernel(context, what,
                {.grid = dim3(static_cast<unsigned>(tile.schedule.num_blocks * tile.split)),
                 .block = dim3(kTileThreads),
                 .shared_bytes = static_cast<size_t>(tile.shared.num_bytes),
                 .cluster_size = static_cast<unsigned>(tile.split),
                 .pdl = tile.starts_early},
                kernel, arguments...);
}

}  // namespace halley::cuda
