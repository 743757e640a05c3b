#include "halley/cuda/gemm/few_rows_kernel.cuh"

namespace halley::cuda {

void launch_few_rows_s8(const CudaContext& context, const FewRowsArguments& args) {
  launch_few_rows_of<S8Codes>(context, args);
}

}  // namespace halley::cuda
