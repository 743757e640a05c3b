#include "halley/base/check.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/norm_kernels.cuh"
#include "halley/cuda/ops/number_rows.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

template <typename X>
__global__ void add_kernel(NormRowShape shape, const X* x, float* hidden) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  for_columns(shape.num_columns, [&](int column, bool is_vec4) {
    const X* from = x + m * shape.block_stride + column;
    float* to = hidden + m * shape.x_stride + column;
    if (is_vec4) {
      const float4 value = load_vec4_if(shape.is_vec4_aligned, from);
      const float4 before = load_vec4_if(shape.is_vec4_aligned, to);
      store_vec4_if(
          shape.is_vec4_aligned,
          {before.x + value.x, before.y + value.y, before.z + value.z, before.w + value.w}, to);
    } else {
      *to += to_f32(*from);
    }
  });
}

/// hidden: [M, K] f32;  x: [M, K] f16 or bf16, or null;  y: [M, K] of the type of x
template <typename X>
__global__ void add_round_kernel(NormRowShape shape, const X* x, float* hidden, X* y,
                                 int64_t y_stride) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  for (int column = static_cast<int>(threadIdx.x); column < shape.num_columns;
       column += static_cast<int>(blockDim.x)) {
    float* value = hidden + m * shape.x_stride + column;
    if (x != nullptr) *value += to_f32(x[m * shape.block_stride + column]);
    y[m * y_stride + column] = from_f32<X>(*value);
  }
}

void run(const CudaContext& context, const NormParams& params, ConstMatrix x, Matrix hidden,
         Matrix y) {
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols == y.num_cols, x.num_rows, y.num_rows,
               x.num_cols, y.num_cols);
  HALLEY_CHECK(y.num_cols >= 1 && y.num_cols <= kNormColumnsMax, y.num_cols);
  if (y.num_rows == 0) return;
  NormRowShape shape = norm_row_shape(x, hidden);
  shape.is_vec4_aligned &= is_vec4_aligned(y);
  float* hidden_data = hidden.data == nullptr ? nullptr : hidden.row<float>(0);
  with_float_type(x.dtype, [&](auto x_type) {
    with_float_type(y.dtype, [&](auto y_type) {
      using X = typename decltype(x_type)::type;
      using Y = typename decltype(y_type)::type;
      const auto* x_data = reinterpret_cast<const X*>(x.data);
      const NumberRows<Y> out = {reinterpret_cast<Y*>(y.data), y.row_stride};
      if (params.is_layer_norm) {
        launch_norm<true>(context, params, shape, x_data, hidden_data, out);
      } else {
        launch_norm<false>(context, params, shape, x_data, hidden_data, out);
      }
    });
  });
}

}  // namespace

void norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix x, Matrix y) {
  run(context, params, x, {}, y);
}

void add_norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix block,
                   Matrix hidden, Matrix y) {
  HALLEY_CHECK(hidden.num_rows == y.num_rows && hidden.num_cols == y.num_cols, hidden.num_rows,
               y.num_rows);
  run(context, params, block, hidden, y);
}

void add_rows(const CudaContext& context, ConstMatrix block, Matrix hidden) {
  HALLEY_CHECK(hidden.num_rows == block.num_rows && hidden.num_cols == block.num_cols,
               hidden.num_rows, block.num_rows);
  if (block.num_rows == 0) return;
  const NormRowShape shape = norm_row_shape(block, hidden);
  with_float_type(block.dtype, [&](auto type) {
    using X = typename decltype(type)::type;
    launch_kernel(context, "add",
                  {.grid = dim3(static_cast<unsigned>(block.num_rows)),
                   .block = dim3(static_cast<unsigned>(norm_threads(block.num_cols)))},
                  add_kernel<X>, shape, reinterpret_cast<const X*>(block.data),
                  hidden.row<float>(0));
  });
}

void add_round_rows(const CudaContext& context, ConstMatrix block, Matrix hidden, Matrix y) {
  HALLEY_CHECK(hidden.num_rows == y.num_rows && hidden.num_cols == y.num_cols, hidden.num_rows,
               y.num_rows);
  const bool has_block = block.data != nullptr;
  HALLEY_CHECK(!has_block || (block.num_rows == y.num_rows && block.dtype == y.dtype),
               block.num_rows, y.num_rows);
  if (y.num_rows == 0) return;
  const NormRowShape shape = norm_row_shape(has_block ? block : ConstMatrix(y), hidden);
  with_float_type(y.dtype, [&](auto type) {
    using X = typename decltype(type)::type;
    launch_kernel(context, "add and round",
                  {.grid = dim3(static_cast<unsigned>(y.num_rows)),
                   .block = dim3(static_cast<unsigned>(norm_threads(y.num_cols)))},
                  add_round_kernel<X>, shape, reinterpret_cast<const X*>(block.data),
                  hidden.row<float>(0), reinterpret_cast<X*>(y.data), y.row_stride);
  });
}

}  // namespace halley::cuda
