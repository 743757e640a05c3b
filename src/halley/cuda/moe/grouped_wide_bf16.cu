#include "halley/cuda/moe/grouped_gemm.cuh"

namespace halley::cuda {

void launch_grouped_wide_bf16(const CudaContext& context, const GroupedParams& params) {
  launch_grouped<Operand::kBf16, WideShape>(context, params);
}

}  // namespace halley::cuda
