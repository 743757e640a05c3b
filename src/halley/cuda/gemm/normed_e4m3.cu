#include "halley/cuda/gemm/normed_kernel.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::cuda {

void launch_normed_e4m3(const CudaContext& context, const CUtensorMap& map,
                        const NormedArguments& args) {
  if (args.row.is_bf16) return launch_normed_of<ptx::WgmmaE4m3, __nv_bfloat16>(context, map, args);
  launch_normed_of<ptx::WgmmaE4m3, __half>(context, map, args);
}

}  // namespace halley::cuda
