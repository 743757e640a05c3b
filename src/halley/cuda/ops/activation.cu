#include "halley/base/check.h"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/early_launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;
/// Of a grid: enough for all multiprocessors several times over.
constexpr int64_t kBlocksMax = 132 * 16;

struct Sizes {
  int64_t num_rows, num_columns, x_stride, y_stride;
};

/// body(row, column) for all elements, four columns at a time where is_four.
template <typename Body>
__device__ void for_elements(const Sizes& sizes, int step, const Body& body) {
  const int64_t steps = sizes.num_columns / step;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = first; i < sizes.num_rows * steps; i += stride) {
    body(i / steps, i % steps * step);
  }
}

template <typename T, bool kIsGated>
__global__ void activation_kernel(Activation activation, Sizes sizes, int step, const T* x, T* y) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for_elements(sizes, step, [&](int64_t m, int64_t column) {
    const T* from = x + m * sizes.x_stride + column;
    T* to = y + m * sizes.y_stride + column;
    if (step == 4) {
      float4 value = load_four(from);
      value = {activate(activation, value.x), activate(activation, value.y),
               activate(activation, value.z), activate(activation, value.w)};
      if (kIsGated) value = product_of(value, load_four(from + sizes.num_columns));
      store_four(value, to);
    } else {
      float value = activate(activation, to_f32(*from));
      if (kIsGated) value = __fmul_rn(value, to_f32(from[sizes.num_columns]));
      *to = from_f32<T>(value);
    }
  });
}

__global__ void soft_cap_kernel(float cap, Sizes sizes, float* x) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for_elements(sizes, 1, [&](int64_t m, int64_t column) {
    float& value = x[m * sizes.x_stride + column];
    value = cap * tanhf(value / cap);
  });
}

unsigned num_blocks_for(int64_t num_items) {
  const int64_t blocks = (num_items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kBlocksMax ? blocks : kBlocksMax);
}

bool is_in_fours(ConstMatrix x) {
  return x.row_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % static_cast<uintptr_t>(bits_of(x.dtype) / 2) == 0;
}

template <bool kIsGated>
void run(const CudaContext& context, Activation activation, ConstMatrix x, Matrix y) {
  if (y.num_rows == 0) return;
  const bool is_four = y.num_cols % 4 == 0 && is_in_fours(x) && is_in_fours(y);
  const int step = is_four ? 4 : 1;
  const Sizes sizes = {y.num_rows, y.num_cols, x.row_stride, y.row_stride};
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch_early(
        context, "activation",
        {.grid = dim3(num_blocks_for(y.num_rows * y.num_cols / step)), .block = dim3(kThreads)},
        activation_kernel<T, kIsGated>, activation, sizes, step, reinterpret_cast<const T*>(x.data),
        reinterpret_cast<T*>(y.data));
  });
}

}  // namespace

void gated_activation(const CudaContext& context, Activation activation, ConstMatrix gate_up,
                      Matrix y) {
  HALLEY_CHECK(gate_up.num_cols == 2 * y.num_cols && gate_up.num_rows == y.num_rows &&
                   gate_up.dtype == y.dtype,
               gate_up.num_cols, y.num_cols, gate_up.num_rows, y.num_rows);
  run<true>(context, activation, gate_up, y);
}

void apply_activation(const CudaContext& context, Activation activation, Matrix x) {
  run<false>(context, activation, x, x);
}

void apply_soft_cap(const CudaContext& context, float cap, Matrix x) {
  HALLEY_CHECK(x.dtype == DType::kF32 && cap > 0, name_of(x.dtype), cap);
  if (x.num_rows == 0) return;
  const Sizes sizes = {x.num_rows, x.num_cols, x.row_stride, x.row_stride};
  launch_early(context, "soft cap",
               {.grid = dim3(num_blocks_for(x.num_rows * x.num_cols)), .block = dim3(kThreads)},
               soft_cap_kernel, cap, sizes, x.row<float>(0));
}

}  // namespace halley::cuda
