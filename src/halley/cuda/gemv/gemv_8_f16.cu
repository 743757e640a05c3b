#include "halley/cuda/gemv/gemv_kernel.cuh"

namespace halley::cuda {

void launch_gemv_8_f16(const CudaContext& context, const GemvPlan& plan,
                       const GemvArguments& args) {
  launch_gemv<GemvF16, 8>(context, plan, args);
}

}  // namespace halley::cuda
