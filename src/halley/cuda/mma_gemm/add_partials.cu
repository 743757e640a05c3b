#include <algorithm>

#include "halley/cuda/mma_gemm/mma_arguments.h"
#include "halley/cuda/mma_gemm/mma_epilogue.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksMax = 1 << 16;

/// A thread adds four neighbouring outputs of a token, part after part.
template <typename Sum, typename Four>
__global__ void __launch_bounds__(kThreads)
    add_partials_kernel(const __grid_constant__ MmaArguments args) {
  const int64_t vectors = int64_t{args.num_panels} * (kChunkOutputs / 4);
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x; index < args.M * vectors;
       index += step) {
    const int m = static_cast<int>(index / vectors), n = static_cast<int>(index % vectors) * 4;
    if (n >= args.N) continue;
    Sum sums[4] = {};
    for (int split = 0; split < args.num_splits; ++split) {
      const Four four = *reinterpret_cast<const Four*>(partials_of<Sum>(args, split, m, n));
      sums[0] += four.x;
      sums[1] += four.y;
      sums[2] += four.z;
      sums[3] += four.w;
    }
    finish_four(args, m, n, sums);
  }
}

template <typename Sum, typename Four>
void launch(const CudaContext& context, const MmaArguments& args) {
  const int64_t threads = int64_t{args.M} * args.num_panels * (kChunkOutputs / 4);
  const int64_t blocks = std::min<int64_t>((threads + kThreads - 1) / kThreads, kBlocksMax);
  launch_kernel(
      context, "partials of mma_gemm",
      {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .pdl = false},
      add_partials_kernel<Sum, Four>, args);
}

}  // namespace

void launch_add_partials_s32(const CudaContext& context, const MmaArguments& args) {
  launch<int32_t, int4>(context, args);
}

void launch_add_partials_f32(const CudaContext& context, const MmaArguments& args) {
  launch<float, float4>(context, args);
}

}  // namespace halley::cuda
