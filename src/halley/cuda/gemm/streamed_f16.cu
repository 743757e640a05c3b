#include "halley/cuda/gemm/streamed_kernel.cuh"

namespace halley::cuda {

void launch_streamed_f16(const CudaContext& context, const CUtensorMap& w_map,
                         const CUtensorMap& x_map, const StreamedArguments& args) {
  launch_streamed_of<F16Stream>(context, w_map, x_map, args);
}

}  // namespace halley::cuda
