#include "halley/cuda/attention/prefill_launch.cuh"

namespace halley::attention {

void launch_prefill_f16(const PrefillLaunch& launch) { launch_prefill_type<KvDType::kF16>(launch); }

}  // namespace halley::attention
