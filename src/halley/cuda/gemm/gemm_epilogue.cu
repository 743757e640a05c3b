#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/gemm_epilogue.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemm/row_scales.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;

struct EpilogueArguments {
  const void* sums;
  void* y;
  int64_t M, N;
  int64_t sums_stride, y_stride;
  DType y_dtype;
  RowScales scales;
  const float* bias;
};

/// A thread takes one output of all rows of its block.
template <typename Sum>
__global__ void __launch_bounds__(kThreads)
    scale_sums_kernel(const __grid_constant__ EpilogueArguments args) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n >= args.N) return;
  for (int64_t m = blockIdx.y; m < args.M; m += gridDim.y) {
    const auto sum =
        static_cast<float>(static_cast<const Sum*>(args.sums)[m * args.sums_stride + n]);
    const float value = scaled_sum(args.scales, args.bias, sum, m, n);
    store_number(args.y, args.y_dtype, m * args.y_stride + n, value);
  }
}

}  // namespace

void scale_sums(const CudaContext& context, ConstMatrix sums, const RowScales& scales,
                const float* bias, Matrix y) {
  HALLEY_CHECK(sums.num_rows == y.num_rows && sums.num_cols == y.num_cols, sums.num_rows,
               sums.num_cols, y.num_rows, y.num_cols);
  HALLEY_CHECK(sums.dtype == DType::kI32 || sums.dtype == DType::kF32, name_of(sums.dtype));
  if (y.num_rows == 0 || y.num_cols == 0) return;
  const EpilogueArguments args = {.sums = sums.data,
                                  .y = y.data,
                                  .M = y.num_rows,
                                  .N = y.num_cols,
                                  .sums_stride = sums.row_stride,
                                  .y_stride = y.row_stride,
                                  .y_dtype = y.dtype,
                                  .scales = scales,
                                  .bias = bias};
  constexpr int64_t kGridRowsMax = 65535;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(args.N, kThreads)),
                  static_cast<unsigned>(std::min(args.M, kGridRowsMax)));
  const auto kernel =
      sums.dtype == DType::kI32 ? scale_sums_kernel<int32_t> : scale_sums_kernel<float>;
  launch_kernel(context, "scale_sums", {.grid = grid, .block = dim3(kThreads)}, kernel, args);
}

}  // namespace halley::cuda
