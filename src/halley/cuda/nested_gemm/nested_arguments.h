// What a launch of the nested product passes to the GPU.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "halley/cuda/hopper_tile/tile_arguments.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct NestedArguments {
  TileArguments tile;
  const uint8_t* lower = nullptr;  // chunks, as nested_layout.h says, along K and then along N
};

/// Tensor maps of the operands that are copied as boxes.
struct NestedMaps {
  CUtensorMap x;      // 64 inputs of a tile's tokens, swizzled by 128 bytes
  CUtensorMap upper;  // 128 inputs of 128 outputs, swizzled by 128 bytes
};

/// Queues one instance of the kernel.
using NestedLaunch = void (*)(const CudaContext& context, const NestedMaps& maps,
                              const NestedArguments& args);

/// The instances are listed in CMakeLists.txt.
template <int kTokens>
void launch_nested(const CudaContext& context, const NestedMaps& maps, const NestedArguments& args);

}  // namespace halley::cuda
