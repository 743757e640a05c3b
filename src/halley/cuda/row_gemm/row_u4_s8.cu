#include "halley/cuda/row_gemm/row_kernel.cuh"

namespace halley::cuda {

void launch_row_u4_s8(const CudaContext& context, const RowArguments& args) {
  launch_row<RowKind::kU4S8>(context, args);
}

}  // namespace halley::cuda
