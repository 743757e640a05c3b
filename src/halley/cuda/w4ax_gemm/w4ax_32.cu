#include "halley/cuda/w4ax_gemm/w4ax_kernel.cuh"

namespace halley::cuda {

void launch_w4ax_32(const CUtensorMap& x_map, const W4axArguments& args, cudaStream_t stream) {
  launch_w4ax<32>(x_map, args, stream);
}

}  // namespace halley::cuda
