#include "halley/cuda/mixed_gemm/hopper_launch.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/shared_bytes.h"
#include "halley/cuda/w4ax_gemm/w4ax_narrow.cuh"

namespace halley::cuda {

void launch_w4ax_narrow(const W4axNarrowArguments& args, cudaStream_t stream) {
  const NarrowArguments& product = args.product;
  const int shared_bytes = product.narrow.num_bytes;
  raise_shared_bytes(w4ax_narrow_kernel, shared_bytes, "a product");
  launch_hopper_kernel(w4ax_narrow_kernel,
                       {.num_blocks = product.num_blocks,
                        .num_threads = kNarrowWarps * 32,
                        .shared_bytes = shared_bytes,
                        .starts_early = product.starts_early,
                        .stream = stream},
                       args);
}

}  // namespace halley::cuda
