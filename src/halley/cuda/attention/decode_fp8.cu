#include "halley/cuda/attention/decode_launch.cuh"

namespace halley::attention {

void launch_decode_fp8(const CudaContext& context, const DecodeParams& params) {
  launch_decode_type<KvDType::kFp8E4M3>(context, params);
}

}  // namespace halley::attention
