#include <type_traits>

#include "halley/base/check.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/norm_row.cuh"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/cuda/ops/register_norm.cuh"
#include "halley/cuda/ops/team_norm.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/early_launch.cuh"

namespace halley::cuda {
namespace {

template <typename Y>
struct StoreRow {
  Y* y;
  bool is_in_fours;
  __device__ void operator()(int column, float4 values) const {
    store_four_if(is_in_fours, values, y + column);
  }
  __device__ void operator()(int column, float value) const { y[column] = from_f32<Y>(value); }
};

/// One block of threads a row. `hidden` null: x alone; else hidden = hidden + x first, and the
/// norm is of that.
template <typename X, typename Y, bool kIsLayerNorm>
__global__ void norm_kernel(NormParams params, RowShape shape, const X* x, float* hidden, Y* y) {
  extern __shared__ float row[];  // [num_columns]
  __shared__ float scratch[kWarpThreads];
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int64_t m = blockIdx.x;
  const NormSource<X> source = {x + m * shape.block_stride,
                                hidden == nullptr ? nullptr : hidden + m * shape.x_stride, row,
                                shape.is_in_fours};
  norm_row<kIsLayerNorm>(params, shape, source, scratch,
                         StoreRow<Y>{y + m * shape.y_stride, shape.is_in_fours});
}

/// The same of few rows that are short.
template <typename X, typename Y>
__global__ void __launch_bounds__(kRegisterNormThreadsMax)
    few_norms_kernel(const __grid_constant__ NormParams params, RowShape shape, const X* x,
                     float* hidden, Y* y) {
  __shared__ float scratch[kWarpThreads];
  let_next_kernel_start();
  const int64_t m = blockIdx.x;
  float* hidden_row = hidden == nullptr ? nullptr : hidden + m * shape.x_stride;
  RegisterNorm<X> norm(params, shape.num_columns, hidden_row);
  wait_for_earlier_kernels();
  norm.run(x + m * shape.block_stride, hidden_row, scratch);
  norm.for_fours([&](int column, const float4& values) {
    store_four(values, y + m * shape.y_stride + column);
  });
}

/// The same of many rows that are short.
template <typename X, typename Y, int kPasses>
__global__ void __launch_bounds__(kTeamThreads)
    team_norm_kernel(const __grid_constant__ NormParams params, RowShape shape, const X* x,
                     float* hidden, Y* y) {
  __shared__ float scratch[kWarpThreads];
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int64_t m = blockIdx.x;
  TeamNorm<X, kPasses> norm(params, shape.num_columns);
  norm.run(x + m * shape.block_stride, hidden == nullptr ? nullptr : hidden + m * shape.x_stride,
           scratch);
  norm.for_fours([&](int column, const float4& values) {
    store_four(values, y + m * shape.y_stride + column);
  });
}

template <typename X>
__global__ void add_kernel(RowShape shape, const X* x, float* hidden) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int64_t m = blockIdx.x;
  for_columns(shape.num_columns, [&](int column, bool is_four) {
    const X* from = x + m * shape.block_stride + column;
    float* to = hidden + m * shape.x_stride + column;
    if (is_four) {
      const float4 value = load_four_if(shape.is_in_fours, from);
      const float4 before = load_four_if(shape.is_in_fours, to);
      store_four_if(
          shape.is_in_fours,
          {before.x + value.x, before.y + value.y, before.z + value.z, before.w + value.w}, to);
    } else {
      *to += to_f32(*from);
    }
  });
}

template <typename X, typename Y, bool kIsLayerNorm>
void launch(const CudaContext& context, const NormParams& params, const RowShape& shape, const X* x,
            float* hidden, Y* y) {
  const auto num_rows = static_cast<unsigned>(shape.num_rows);
  const auto num_threads = static_cast<unsigned>(norm_threads(shape.num_columns));
  if constexpr (!kIsLayerNorm) {
    if (takes_register_norm(context, params, shape)) {
      return launch_early(context, "norm of few rows",
                          {.grid = dim3(num_rows), .block = dim3(num_threads)},
                          few_norms_kernel<X, Y>, params, shape, x, hidden, y);
    }
  }
  if constexpr (!kIsLayerNorm && std::is_same_v<X, Y> && !std::is_same_v<X, float>) {
    if (takes_team_norm<X>(params, shape)) {
      return with_team_passes<X>(shape.num_columns, [&](auto passes) {
        launch_early(
            context, "norm of many rows",
            {.grid = dim3(static_cast<unsigned>(shape.num_rows)), .block = dim3(kTeamThreads)},
            team_norm_kernel<X, Y, decltype(passes)::value>, params, shape, x, hidden, y);
      });
    }
  }
  const size_t row_bytes = static_cast<size_t>(shape.num_columns) * sizeof(float);
  const auto kernel = norm_kernel<X, Y, kIsLayerNorm>;
  // 48 KiB, less what lies there beside the row.
  if (row_bytes > size_t{47} * 1024) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(row_bytes)),
               "shared memory of norm");
  }
  launch_early(context, "norm",
               {.grid = dim3(num_rows), .block = dim3(num_threads), .shared_bytes = row_bytes},
               kernel, params, shape, x, hidden, y);
}

bool is_in_fours(ConstMatrix x) {
  const auto bytes = static_cast<uintptr_t>(bits_of(x.dtype) / 2);  // of four elements
  return x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % bytes == 0;
}

void run(const CudaContext& context, const NormParams& params, ConstMatrix x, Matrix hidden,
         Matrix y) {
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols == y.num_cols, x.num_rows, y.num_rows,
               x.num_cols, y.num_cols);
  HALLEY_CHECK(y.num_cols >= 1 && y.num_cols <= kNormColumnsMax, y.num_cols);
  if (y.num_rows == 0) return;
  const bool has_hidden = hidden.data != nullptr;
  const RowShape shape = {
      .num_rows = static_cast<int>(y.num_rows),
      .num_columns = static_cast<int>(y.num_cols),
      .is_in_fours = is_in_fours(x) && is_in_fours(y) && (!has_hidden || is_in_fours(hidden)),
      .x_stride = hidden.row_stride,
      .block_stride = x.row_stride,
      .y_stride = y.row_stride};
  float* hidden_data = has_hidden ? hidden.row<float>(0) : nullptr;
  with_float_type(x.dtype, [&](auto x_type) {
    with_float_type(y.dtype, [&](auto y_type) {
      using X = typename decltype(x_type)::type;
      using Y = typename decltype(y_type)::type;
      const auto* x_data = reinterpret_cast<const X*>(x.data);
      auto* y_data = reinterpret_cast<Y*>(y.data);
      if (params.is_layer_norm) {
        launch<X, Y, true>(context, params, shape, x_data, hidden_data, y_data);
      } else {
        launch<X, Y, false>(context, params, shape, x_data, hidden_data, y_data);
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
  const RowShape shape = {.num_rows = static_cast<int>(block.num_rows),
                          .num_columns = static_cast<int>(block.num_cols),
                          .is_in_fours = is_in_fours(block) && is_in_fours(hidden),
                          .x_stride = hidden.row_stride,
                          .block_stride = block.row_stride,
                          .y_stride = 0};
  with_float_type(block.dtype, [&](auto type) {
    using X = typename decltype(type)::type;
    launch_early(context, "add",
                 {.grid = dim3(static_cast<unsigned>(block.num_rows)),
                  .block = dim3(static_cast<unsigned>(norm_threads(block.num_cols)))},
                 add_kernel<X>, shape, reinterpret_cast<const X*>(block.data),
                 hidden.row<float>(0));
  });
}

}  // namespace halley::cuda
