#include "halley/cuda/mixed_gemm/mixed_instances.h"
#include "halley/cuda/mixed_gemm/mixed_u8_decode.cuh"
#include "halley/cuda/mixed_gemm/narrow_kernel.cuh"

namespace halley::cuda {

void launch_narrow_u8_f16(const NarrowArguments& args, cudaStream_t stream) {
  launch_narrow<U8F16Decoder>(args, stream);
}

}  // namespace halley::cuda
