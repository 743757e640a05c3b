#include "halley/cuda/mixed_gemm/mixed_instances.h"
#include "halley/cuda/mixed_gemm/narrow_kernel.cuh"

namespace halley::cuda {

void launch_narrow_u4_group_s8(const NarrowArguments& args, cudaStream_t stream) {
  launch_narrow<U4GroupS8Decoder>(args, stream);
}

}  // namespace halley::cuda
