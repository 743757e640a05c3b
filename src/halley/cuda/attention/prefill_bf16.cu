#include "halley/cuda/attention/prefill_launch.cuh"

namespace halley::attention {

void launch_prefill_bf16(const PrefillLaunch& launch) {
  launch_prefill_type<KvDType::kBf16>(launch);
}

}  // namespace halley::attention
