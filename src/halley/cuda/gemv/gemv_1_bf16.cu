#include "halley/cuda/gemv/gemv_kernel.cuh"

namespace halley::cuda {

void launch_gemv_1_bf16(const CudaContext& context, const GemvPlan& plan,
                        const GemvArguments& args) {
  launch_gemv<GemvBf16, 1>(context, plan, args);
}

}  // namespace halley::cuda
