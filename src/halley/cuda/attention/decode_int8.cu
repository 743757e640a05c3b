#include "halley/cuda/attention/decode_launch.cuh"

namespace halley::attention {

void launch_decode_int8(const CudaContext& context, const DecodeParams& params) {
  launch_decode_type<KvDType::kInt8>(context, params);
}

}  // namespace halley::attention
