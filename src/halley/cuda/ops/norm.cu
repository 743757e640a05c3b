#include <algorithm>

#include "halley/base/check.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {
namespace {

/// Calls body(first column, number of columns: 4 or 1) for this thread's part of a row. Fours only
/// where every row begins at a multiple of four elements.
template <typename Body>
__device__ void for_columns(int num_columns, bool is_in_fours, const Body& body) {
  const int num_fours = is_in_fours ? num_columns / 4 : 0;
  for (int i = static_cast<int>(threadIdx.x); i < num_fours; i += static_cast<int>(blockDim.x)) {
    body(4 * i, true);
  }
  for (int i = 4 * num_fours + static_cast<int>(threadIdx.x); i < num_columns;
       i += static_cast<int>(blockDim.x)) {
    body(i, false);
  }
}

struct RowShape {
  int num_rows, num_columns;
  bool is_in_fours;
  int64_t x_stride, block_stride, y_stride;
};

/// One block of threads a row. `hidden` null: x alone; else hidden = hidden + x first, and the
/// norm is of that.
template <typename X, typename Y, bool kIsLayerNorm>
__global__ void norm_kernel(NormParams params, RowShape shape, const X* x, float* hidden, Y* y) {
  extern __shared__ float row[];  // [num_columns]
  __shared__ float scratch[kWarpThreads];
  const int64_t m = blockIdx.x;
  const X* x_row = x + m * shape.block_stride;
  float* hidden_row = hidden == nullptr ? nullptr : hidden + m * shape.x_stride;
  float sum = 0;
  for_columns(shape.num_columns, shape.is_in_fours, [&](int column, bool is_four) {
    if (is_four) {
      float4 value = load_four(x_row + column);
      if (hidden_row != nullptr) {
        const float4 before = load_four(hidden_row + column);
        value = {before.x + value.x, before.y + value.y, before.z + value.z, before.w + value.w};
        store_four(value, hidden_row + column);
      }
      *reinterpret_cast<float4*>(row + column) = value;
      if (kIsLayerNorm) {
        sum += value.x + value.y + value.z + value.w;
      } else {
        sum += value.x * value.x + value.y * value.y + value.z * value.z + value.w * value.w;
      }
    } else {
      float value = to_f32(x_row[column]);
      if (hidden_row != nullptr) {
        value += hidden_row[column];
        hidden_row[column] = value;
      }
      row[column] = value;
      sum += kIsLayerNorm ? value : value * value;
    }
  });
  const auto size = static_cast<float>(shape.num_columns);
  float mean = 0;
  if (kIsLayerNorm) {
    mean = block_sum(sum, scratch) / size;
    sum = 0;
    for_columns(shape.num_columns, shape.is_in_fours, [&](int column, bool is_four) {
      for (int i = 0; i < (is_four ? 4 : 1); ++i) {
        const float difference = row[column + i] - mean;
        sum += difference * difference;
      }
    });
  }
  const float inverse = rsqrtf(block_sum(sum, scratch) / size + params.epsilon);
  Y* y_row = y + m * shape.y_stride;
  const auto normed = [&](int column) {
    const float weight = params.weight[column];
    if (!kIsLayerNorm) return row[column] * inverse * (weight + params.weight_offset);
    const float bias = params.bias == nullptr ? 0.0f : params.bias[column];
    return (row[column] - mean) * inverse * weight + bias;
  };
  // Each thread reads back what it wrote itself.
  for_columns(shape.num_columns, shape.is_in_fours, [&](int column, bool is_four) {
    if (is_four) {
      store_four({normed(column), normed(column + 1), normed(column + 2), normed(column + 3)},
                 y_row + column);
    } else {
      y_row[column] = from_f32<Y>(normed(column));
    }
  });
}

template <typename X>
__global__ void add_kernel(RowShape shape, const X* x, float* hidden) {
  const int64_t m = blockIdx.x;
  for_columns(shape.num_columns, shape.is_in_fours, [&](int column, bool is_four) {
    const X* from = x + m * shape.block_stride + column;
    float* to = hidden + m * shape.x_stride + column;
    if (is_four) {
      const float4 value = load_four(from), before = load_four(to);
      store_four({before.x + value.x, before.y + value.y, before.z + value.z, before.w + value.w},
                 to);
    } else {
      *to += to_f32(*from);
    }
  });
}

/// K alone decides, so that a row's sums do not depend on the batch.
int num_threads_for(int64_t num_columns) {
  const int64_t fours = (num_columns + 3) / 4;
  const int64_t warps = std::clamp<int64_t>((fours + kWarpThreads - 1) / kWarpThreads, 1, 32);
  return static_cast<int>(warps) * kWarpThreads;
}

template <typename X, typename Y, bool kIsLayerNorm>
void launch(const CudaContext& context, const NormParams& params, const RowShape& shape, const X* x,
            float* hidden, Y* y) {
  const size_t row_bytes = static_cast<size_t>(shape.num_columns) * sizeof(float);
  const auto kernel = norm_kernel<X, Y, kIsLayerNorm>;
  if (row_bytes > size_t{48} * 1024) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(row_bytes)),
               "shared memory of norm");
  }
  kernel<<<static_cast<unsigned>(shape.num_rows), num_threads_for(shape.num_columns), row_bytes,
           context.stream.get()>>>(params, shape, x, hidden, y);
  check_launch("norm");
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
    add_kernel<X><<<static_cast<unsigned>(block.num_rows), num_threads_for(block.num_cols), 0,
                    context.stream.get()>>>(shape, reinterpret_cast<const X*>(block.data),
                                            hidden.row<float>(0));
  });
  check_launch("add");
}

}  // namespace halley::cuda
