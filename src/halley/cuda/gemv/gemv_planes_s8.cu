#include "halley/cuda/gemv/gemv_planes_kernel.cuh"
#include "halley/cuda/gemv/gemv_planes_launch.h"

namespace halley::cuda {

void launch_gemv_planes_s8(const CudaContext& context, int bits, const GemvPlanePlan& plan,
                           const GemvArguments& args) {
  switch (bits) {
    case 2:
      return launch_gemv_planes<S8Planes, 2>(context, plan, args);
    case 1:
      return launch_gemv_planes<S8Planes, 1>(context, plan, args);
    default:
      HALLEY_CHECK(false, bits);
  }
}

}  // namespace halley::cuda
