#include "halley/cuda/gemv/gemv_kernel.cuh"

namespace halley::cuda {

void launch_gemv_1_s8(const CudaContext& context, const GemvPlan& plan, const GemvArguments& args) {
  launch_gemv<GemvS8, 1>(context, plan, args);
}

}  // namespace halley::cuda
