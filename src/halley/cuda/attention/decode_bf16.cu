#include "halley/cuda/attention/decode_launch.cuh"

namespace halley::attention {

void launch_decode_bf16(const DecodeParams& params, int num_multiprocessors, cudaStream_t stream) {
  launch_decode_type<KvDType::kBf16>(params, num_multiprocessors, stream);
}

}  // namespace halley::attention
