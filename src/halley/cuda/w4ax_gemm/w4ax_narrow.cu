#include <algorithm>

#include "halley/base/checked_math.h"
#include "halley/cuda/mixed_gemm/hopper_launch.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/w4ax_gemm/w4ax_narrow.cuh"

namespace halley::cuda {

void launch_w4ax_narrow(W4axNarrowArguments args, const W4axNarrowLaunch& launch) {
  const int row_bytes = kW4axNarrowWarps * args.M * 16 * 4;
  const int block_rows = ceil_div(args.num_rows, launch.num_blocks);
  args.pass_rows = kW4axNarrowKeptBytes / row_bytes / kW4axNarrowRows * kW4axNarrowRows;
  const int shared_bytes = std::min(args.pass_rows, block_rows) * row_bytes;
  check_cuda(cudaFuncSetAttribute(w4ax_narrow_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  shared_bytes),
             "shared memory of a product");
  launch_hopper_kernel(w4ax_narrow_kernel,
                       {.num_blocks = launch.num_blocks,
                        .num_threads = kW4axNarrowWarps * 32,
                        .shared_bytes = shared_bytes,
                        .starts_early = launch.starts_early,
                        .stream = launch.stream},
                       args);
}

}  // namespace halley::cuda
