#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"
#include "halley/cuda/weights/order_columns.h"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kGridRowsMax = 65535;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    order_columns_kernel(const int32_t* order, const T* x, int64_t x_stride, Matrix y) {
  const int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool is_column = k < y.num_cols;
  const int64_t from = is_column ? order[k] : 0;
  ptx::griddepcontrol_wait();
  for (int64_t m = blockIdx.y; is_column && m < y.num_rows; m += gridDim.y) {
    store_number(y.data, y.dtype, m * y.row_stride + k, to_float(x[m * x_stride + from]));
  }
  ptx::griddepcontrol_launch_dependents();
}

}  // namespace

void order_columns(const CudaContext& context, const int32_t* order, ConstMatrix x, Matrix y) {
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols >= y.num_cols, x.num_rows, x.num_cols,
               y.num_rows, y.num_cols);
  if (y.num_rows == 0 || y.num_cols == 0) return;
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>(ceil_div<int64_t>(y.num_cols, kThreads)),
                   static_cast<unsigned>(std::min(y.num_rows, kGridRowsMax))),
      .block = dim3(kThreads)};
  const auto launch = [&](auto* data) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
    launch_kernel(context, "order_columns", shape, order_columns_kernel<T>, order, data,
                  x.row_stride, y);
  };
  switch (x.dtype) {
    case DType::kF16:
      return launch(reinterpret_cast<const __half*>(x.data));
    case DType::kBf16:
      return launch(reinterpret_cast<const __nv_bfloat16*>(x.data));
    case DType::kF32:
      return launch(reinterpret_cast<const float*>(x.data));
    default:
      HALLEY_CHECK(false, name_of(x.dtype));
  }
}

}  // namespace halley::cuda
