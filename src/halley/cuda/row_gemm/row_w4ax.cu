#include "halley/cuda/row_gemm/row_kernel.cuh"

namespace halley::cuda {

void launch_row_w4ax(const CudaContext& context, const RowArguments& args) {
  launch_row<RowKind::kW4ax>(context, args);
}

}  // namespace halley::cuda
