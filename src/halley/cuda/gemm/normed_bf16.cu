#include "halley/cuda/gemm/normed_kernel.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::cuda {

void launch_normed_bf16(const CudaContext& context, const CUtensorMap& map,
                        const NormedArguments& args) {
  launch_normed_of<ptx::WgmmaBf16, __nv_bfloat16>(context, map, args);
}

}  // namespace halley::cuda
