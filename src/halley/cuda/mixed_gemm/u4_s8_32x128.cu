#include "halley/cuda/mixed_gemm/mixed_instances.h"
#include "halley/cuda/mixed_gemm/mixed_kernel.cuh"

namespace halley::cuda {

void launch_u4_s8_32x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream) {
  launch_mixed<U4S8Decoder, 32, 128>(maps, args, stream);
}

}  // namespace halley::cuda
