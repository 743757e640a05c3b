#include "halley/cuda/gemm/streamed_kernel.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::cuda {

void launch_streamed_e4m3(const CudaContext& context, const CUtensorMap& w_map,
                          const CUtensorMap& x_map, const StreamedArguments& args) {
  launch_streamed_of<ptx::WgmmaE4m3>(context, w_map, x_map, args);
}

}  // namespace halley::cuda
