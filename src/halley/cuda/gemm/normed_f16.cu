#include "halley/cuda/gemm/normed_kernel.cuh"

namespace halley::cuda {

void launch_normed_f16(const CudaContext& context, const CUtensorMap& map,
                       const NormedArguments& args) {
  launch_normed_of<F16Stream, __half>(context, map, args);
}

}  // namespace halley::cuda
