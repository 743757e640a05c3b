#include "halley/cuda/gemm/normed_kernel.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::cuda {

void launch_normed_f16(const CudaContext& context, const CUtensorMap& map,
                       const NormedArguments& args) {
  launch_normed_of<ptx::WgmmaF16, __half>(context, map, args);
}

}  // namespace halley::cuda
