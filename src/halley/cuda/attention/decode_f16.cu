#include "halley/cuda/attention/decode_launch.cuh"

namespace halley::attention {

void launch_decode_f16(const CudaContext& context, const DecodeParams& params) {
  launch_decode_type<KvDType::kF16>(context, params);
}

}  // namespace halley::attention
