#include "halley/cuda/mixed_gemm/mixed_instances.h"
#include "halley/cuda/mixed_gemm/mixed_kernel.cuh"
#include "halley/cuda/mixed_gemm/mixed_u8_decode.cuh"

namespace halley::cuda {

void launch_u8_bf16_64x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream) {
  launch_mixed<U8Bf16Decoder, 64, 256>(maps, args, stream);
}

}  // namespace halley::cuda
