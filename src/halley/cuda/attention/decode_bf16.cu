#include "halley/cuda/attention/decode_launch.cuh"

namespace halley::attention {

void launch_decode_bf16(const CudaContext& context, const DecodeParams& params) {
  launch_decode_type<KvDType::kBf16>(context, params);
}

}  // namespace halley::attention
