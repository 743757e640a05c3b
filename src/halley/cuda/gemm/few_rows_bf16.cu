#include "halley/cuda/gemm/few_rows_kernel.cuh"

namespace halley::cuda {

void launch_few_rows_bf16(const CudaContext& context, const FewRowsArguments& args) {
  launch_few_rows_of<Bf16Numbers>(context, args);
}

}  // namespace halley::cuda
