#include "halley/cuda/attention/prefill_launch.cuh"

namespace halley::attention {

void launch_prefill_fp8(const PrefillParams& params, int num_items, cudaStream_t stream) {
  launch_prefill_type<KvDType::kFp8E4M3>(params, num_items, stream);
}

}  // namespace halley::attention
