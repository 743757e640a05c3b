#include "halley/cuda/moe/grouped_gemm.cuh"

namespace halley::cuda {

void launch_grouped_narrow_f16(const GroupedParams& params, const GroupedLaunch& launch) {
  launch_grouped<Operand::kF16, NarrowShape>(params, launch);
}

}  // namespace halley::cuda
