#include "halley/cuda/attention/decode_launch.cuh"

namespace halley::attention {

void launch_decode_f16(const DecodeParams& params, int num_multiprocessors, cudaStream_t stream) {
  launch_decode_type<KvDType::kF16>(params, num_multiprocessors, stream);
}

}  // namespace halley::attention
