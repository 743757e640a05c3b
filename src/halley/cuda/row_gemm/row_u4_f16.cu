#include "halley/cuda/row_gemm/row_kernel.cuh"

namespace halley::cuda {

void launch_row_u4_f16(const CudaContext& context, const RowArguments& args) {
  launch_row<RowKind::kU4F16>(context, args);
}

}  // namespace halley::cuda
