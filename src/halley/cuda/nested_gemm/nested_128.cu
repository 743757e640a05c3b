#include "halley/cuda/nested_gemm/nested_kernel.cuh"

namespace halley::cuda {

void launch_nested_128(const NestedMaps& maps, const NestedArguments& args, cudaStream_t stream) {
  launch_nested<128>(maps, args, stream);
}

}  // namespace halley::cuda
