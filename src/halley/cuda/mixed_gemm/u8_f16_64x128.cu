#include "halley/cuda/mixed_gemm/mixed_instances.h"
#include "halley/cuda/mixed_gemm/mixed_kernel.cuh"
#include "halley/cuda/mixed_gemm/mixed_u8_decode.cuh"

namespace halley::cuda {

void launch_u8_f16_64x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream) {
  launch_mixed<U8F16Decoder, 64, 128>(maps, args, stream);
}

}  // namespace halley::cuda
