#include "halley/cuda/attention/decode_launch.cuh"

namespace halley::attention {

void launch_decode_int4(const CudaContext& context, const DecodeParams& params) {
  launch_decode_type<KvDType::kInt4>(context, params);
}

}  // namespace halley::attention
