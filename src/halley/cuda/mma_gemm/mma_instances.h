// The compiled instances of the kernel, which CMakeLists.txt lists.
#pragma once

#include "halley/cuda/mma_gemm/mma_arguments.h"

namespace halley::cuda {

struct MmaU4S8;
struct MmaU4GroupS8;
struct MmaU4F16;
struct MmaU4Bf16;
struct MmaS4Blocks;

/// Of a tile of kMmaTiles.
template <class Decoder, int kTileIndex>
void launch_mma(const CudaContext& context, const MmaArguments& args, int shared_bytes);

}  // namespace halley::cuda
