#include "halley/cuda/gemv/gemv_digits_kernel.cuh"

namespace halley::cuda {

void launch_gemv_digits_f16(const CudaContext& context, int bits, const GemvDigitPlan& plan,
                            const GemvArguments& args) {
  switch (bits) {
    case 8:
      return launch_gemv_digits<F16Digits, 8>(context, plan, args);
    case 3:
      return launch_gemv_digits<F16Digits, 3>(context, plan, args);
    default:
      HALLEY_CHECK(false, bits);
  }
}

}  // namespace halley::cuda
