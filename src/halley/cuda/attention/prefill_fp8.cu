#include "halley/cuda/attention/prefill_launch.cuh"

namespace halley::attention {

void launch_prefill_fp8(const PrefillLaunch& launch) {
  launch_prefill_type<KvDType::kFp8E4M3>(launch);
}

}  // namespace halley::attention
