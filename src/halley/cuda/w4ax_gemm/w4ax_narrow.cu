#include "halley/cuda/runtime/launch.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_narrow.cuh"

namespace halley::cuda {

void launch_w4ax_narrow(const CudaContext& context, const W4axNarrowArguments& args) {
  const NarrowArguments& product = args.product;
  launch_kernel(context, "w4ax_gemm",
                {.grid = dim3(static_cast<unsigned>(product.num_blocks)),
                 .block = dim3(kNarrowWarps * 32),
                 .shared_bytes = static_cast<size_t>(product.narrow.num_bytes),
                 .pdl = product.starts_early},
                w4ax_narrow_kernel, args);
}

}  // namespace halley::cuda
