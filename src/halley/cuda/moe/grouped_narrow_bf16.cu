#include "halley/cuda/moe/grouped_gemm.cuh"

namespace halley::cuda {

void launch_grouped_narrow_bf16(const CudaContext& context, const GroupedParams& params) {
  launch_grouped<Operand::kBf16, NarrowShape>(context, params);
}

}  // namespace halley::cuda
