#include "halley/cuda/gemm/normed_kernel.cuh"

namespace halley::cuda {

void launch_normed_bf16(const CudaContext& context, const CUtensorMap& map,
                        const NormedArguments& args) {
  launch_normed_of<Bf16Stream, __nv_bfloat16>(context, map, args);
}

}  // namespace halley::cuda
