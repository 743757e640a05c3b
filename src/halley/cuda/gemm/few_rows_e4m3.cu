#include "halley/cuda/gemm/few_rows_kernel.cuh"

namespace halley::cuda {

void launch_few_rows_e4m3(const CudaContext& context, const FewRowsArguments& args) {
  launch_few_rows_of<E4m3Codes>(context, args);
}

}  // namespace halley::cuda
