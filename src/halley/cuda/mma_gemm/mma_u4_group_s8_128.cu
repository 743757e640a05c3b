#include "halley/cuda/mma_gemm/mma_instances.h"
#include "halley/cuda/mma_gemm/mma_kernel.cuh"

namespace halley::cuda {

void launch_mma_u4_group_s8_128(const MmaArguments& args, int shared_bytes, cudaStream_t stream) {
  launch_mma<MmaU4GroupS8, 2>(args, shared_bytes, stream);
}

}  // namespace halley::cuda
