#include "halley/cuda/attention/prefill_launch.cuh"

namespace halley::attention {

void launch_prefill_int4(const PrefillLaunch& launch) {
  launch_prefill_type<KvDType::kInt4>(launch);
}

}  // namespace halley::attention
