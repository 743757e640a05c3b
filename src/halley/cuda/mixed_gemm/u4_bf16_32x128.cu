#include "halley/cuda/mixed_gemm/mixed_instances.h"
#include "halley/cuda/mixed_gemm/mixed_kernel.cuh"

namespace halley::cuda {

void launch_u4_bf16_32x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream) {
  launch_mixed<U4Bf16Decoder, 32, 128>(maps, args, stream);
}

}  // namespace halley::cuda
