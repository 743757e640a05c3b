#include "halley/cuda/gemv/gemv_kernel.cuh"

namespace halley::cuda {

void launch_gemv_2_s8(const CudaContext& context, const GemvPlan& plan, const GemvArguments& args) {
  launch_gemv<GemvS8, 2>(context, plan, args);
}

}  // namespace halley::cuda
