#include "halley/cuda/attention/prefill_launch.cuh"

namespace halley::attention {

void launch_prefill_int8(const PrefillParams& params, int num_items, cudaStream_t stream) {
  launch_prefill_type<KvDType::kInt8>(params, num_items, stream);
}

}  // namespace halley::attention
