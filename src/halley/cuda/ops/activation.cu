#include <algorithm>
#include <cstdint>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;
/// Grid limit: enough CTAs for all SMs several times over.
constexpr int64_t kCtasMax = 132 * 16;

struct Sizes {
  int64_t num_rows, num_columns, x_stride, y_stride;
};

/// Calls body(row, column) for all elements.
template <typename Body>
__device__ void for_elements(const Sizes& sizes, const Body& body) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = first; i < sizes.num_rows * sizes.num_columns; i += stride) {
    body(i / sizes.num_columns, i % sizes.num_columns);
  }
}

template <typename T, bool kIsGated>
__global__ void activation_kernel(Activation activation, Sizes sizes, const T* x, T* y) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  for_elements(sizes, [&](int64_t m, int64_t column) {
    const T* from = x + m * sizes.x_stride + column;
    float value = activate(activation, to_f32(*from));
    if (kIsGated) value = __fmul_rn(value, to_f32(from[sizes.num_columns]));
    y[m * sizes.y_stride + column] = from_f32<T>(value);
  });
}

/// x: [M, 2F] (gated) or [M, F], y: [M, F], row-major. Eight columns a thread: blockIdx.x selects
/// columns, blockIdx.y rows.
template <typename T, bool kIsGated>
__global__ void __launch_bounds__(kThreads)
    activation_vec8_kernel(Activation activation, Sizes sizes, const T* x, T* y) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
  if (column >= sizes.num_columns) return;
  for (int64_t m = blockIdx.y; m < sizes.num_rows; m += gridDim.y) {
    const T* from = x + m * sizes.x_stride + column;
    Vec8<T> gate, up;
    gate.load(from);
    if constexpr (kIsGated) up.load(from + sizes.num_columns);
    float values[8];
    gate.unpack(values);
    with_activation(activation, [&](auto known) {
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] = activate(decltype(known)::value, values[i]);
    });
    if constexpr (kIsGated) {
      float factors[8];
      up.unpack(factors);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] = __fmul_rn(values[i], factors[i]);
    }
    store_vec8(values, y + m * sizes.y_stride + column);
  }
}

__global__ void soft_cap_kernel(float cap, Sizes sizes, float* x) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  for_elements(sizes, [&](int64_t m, int64_t column) {
    float& value = x[m * sizes.x_stride + column];
    value = cap * tanhf(value / cap);
  });
}

__global__ void scale_kernel(float factor, Sizes sizes, float* x) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  for_elements(sizes, [&](int64_t m, int64_t column) { x[m * sizes.x_stride + column] *= factor; });
}

unsigned num_ctas_for(int64_t num_items) {
  const int64_t ctas = (num_items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(ctas < kCtasMax ? ctas : kCtasMax);
}

bool is_vec8_aligned(ConstMatrix x) {
  return x.num_cols % 8 == 0 && x.row_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

LaunchShape vec8_launch_shape(int64_t num_rows, int64_t num_columns) {
  constexpr int64_t kFewRows = 32;     // smaller CTAs then occupy more SMs
  constexpr int64_t kGridMax = 65535;  // gridDim.y
  const int64_t vec8 = num_columns / 8;
  const int64_t threads_max = num_rows <= kFewRows ? kThreads / 4 : kThreads;
  const int64_t threads = std::min(round_up(vec8, int64_t{32}), threads_max);
  return {.grid = dim3(static_cast<unsigned>(ceil_div(vec8, threads)),
                       static_cast<unsigned>(std::min(num_rows, kGridMax))),
          .block = dim3(static_cast<unsigned>(threads))};
}

template <bool kIsGated>
void run(const CudaContext& context, Activation activation, ConstMatrix x, Matrix y) {
  if (y.num_rows == 0 || y.num_cols == 0) return;
  const Sizes sizes = {y.num_rows, y.num_cols, x.row_stride, y.row_stride};
  with_float_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* from = reinterpret_cast<const T*>(x.data);
    auto* to = reinterpret_cast<T*>(y.data);
    if (is_vec8_aligned(x) && is_vec8_aligned(y)) {
      launch_kernel(context, "activation", vec8_launch_shape(y.num_rows, y.num_cols),
                    activation_vec8_kernel<T, kIsGated>, activation, sizes, from, to);
    } else {
      launch_kernel(context, "activation",
                    {.grid = dim3(num_ctas_for(y.num_rows * y.num_cols)), .block = dim3(kThreads)},
                    activation_kernel<T, kIsGated>, activation, sizes, from, to);
    }
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

void scale_rows(const CudaContext& context, float factor, Matrix x) {
  HALLEY_CHECK(x.dtype == DType::kF32, name_of(x.dtype));
  if (x.num_rows == 0) return;
  const Sizes sizes = {x.num_rows, x.num_cols, x.row_stride, x.row_stride};
  launch_kernel(context, "scale",
                {.grid = dim3(num_ctas_for(x.num_rows * x.num_cols)), .block = dim3(kThreads)},
                scale_kernel, factor, sizes, x.row<float>(0));
}

void apply_soft_cap(const CudaContext& context, float cap, Matrix x) {
  HALLEY_CHECK(x.dtype == DType::kF32 && cap > 0, name_of(x.dtype), cap);
  if (x.num_rows == 0) return;
  const Sizes sizes = {x.num_rows, x.num_cols, x.row_stride, x.row_stride};
  launch_kernel(context, "soft cap",
                {.grid = dim3(num_ctas_for(x.num_rows * x.num_cols)), .block = dim3(kThreads)},
                soft_cap_kernel, cap, sizes, x.row<float>(0));
}

}  // namespace halley::cuda
