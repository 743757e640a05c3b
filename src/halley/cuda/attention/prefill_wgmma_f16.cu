#include "halley/cuda/attention/prefill_wgmma_launch.cuh"

namespace halley::attention {

void launch_prefill_wgmma_f16(const PrefillParams& params, int num_items, cudaStream_t stream) {
  launch_prefill_wgmma_type<KvDType::kF16>(params, num_items, stream);
}

}  // namespace halley::attention
