#include <type_traits>

#include "halley/base/check.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/norm_kernels.cuh"
#include "halley/cuda/runtime/pdl_launch.cuh"

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

/// Results as numbers; see norm_kernels.cuh.
template <typename Y>
struct NumberRows {
  static constexpr const char* kName = "norm";
  template <typename X>
  static constexpr bool kTakesTeams = std::is_same_v<X, Y> && !std::is_same_v<X, float>;

  Y* y;
  int64_t stride;

  template <bool kIsLayerNorm, typename X>
  __device__ void write_row(const NormParams& params, const NormShape& shape,
                            const NormSource<X>& source, float* scratch) const {
    norm_row<kIsLayerNorm>(params, shape, source, scratch,
                           StoreRow<Y>{y + blockIdx.x * stride, shape.is_in_fours});
  }
  template <typename Norm>
  __device__ void write_fours(Norm& norm, int /*num_columns*/) const {
    norm.for_fours([&](int column, const float4& values) {
      store_four(values, y + blockIdx.x * stride + column);
    });
  }
};

template <typename X>
__global__ void add_kernel(NormShape shape, const X* x, float* hidden) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
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

void run(const CudaContext& context, const NormParams& params, ConstMatrix x, Matrix hidden,
         Matrix y) {
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols == y.num_cols, x.num_rows, y.num_rows,
               x.num_cols, y.num_cols);
  HALLEY_CHECK(y.num_cols >= 1 && y.num_cols <= kNormColumnsMax, y.num_cols);
  if (y.num_rows == 0) return;
  const bool has_hidden = hidden.data != nullptr;
  const NormShape shape = {
      .num_rows = static_cast<int>(y.num_rows),
      .num_columns = static_cast<int>(y.num_cols),
      .is_in_fours = is_in_fours(x) && is_in_fours(y) && (!has_hidden || is_in_fours(hidden)),
      .x_stride = hidden.row_stride,
      .block_stride = x.row_stride};
  float* hidden_data = has_hidden ? hidden.row<float>(0) : nullptr;
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
  const NormShape shape = {.num_rows = static_cast<int>(block.num_rows),
                           .num_columns = static_cast<int>(block.num_cols),
                           .is_in_fours = is_in_fours(block) && is_in_fours(hidden),
                           .x_stride = hidden.row_stride,
                           .block_stride = block.row_stride};
  with_float_type(block.dtype, [&](auto type) {
    using X = typename decltype(type)::type;
    launch_with_pdl(context, "add",
                    {.grid = dim3(static_cast<unsigned>(block.num_rows)),
                     .block = dim3(static_cast<unsigned>(norm_threads(block.num_cols)))},
                    add_kernel<X>, shape, reinterpret_cast<const X*>(block.data),
                    hidden.row<float>(0));
  });
}

}  // namespace halley::cuda
