#include "halley/cuda/mma_gemm/mma_instances.h"
#include "halley/cuda/mma_gemm/mma_kernel.cuh"

namespace halley::cuda {

void launch_mma_u4_f16_16(const MmaArguments& args, int shared_bytes, cudaStream_t stream) {
  launch_mma<MmaU4F16, 0>(args, shared_bytes, stream);
}

}  // namespace halley::cuda
