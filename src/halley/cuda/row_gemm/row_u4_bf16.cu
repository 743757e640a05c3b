#include "halley/cuda/row_gemm/row_kernel.cuh"

namespace halley::cuda {

void launch_row_u4_bf16(const CudaContext& context, const RowArguments& args) {
  launch_row<RowKind::kU4Bf16>(context, args);
}

}  // namespace halley::cuda
