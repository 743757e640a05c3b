#include <cstdint>
#include <type_traits>

#include "halley/base/check.h"
#include "halley/cuda/fused/code_writer.cuh"
#include "halley/cuda/fused/norm_codes.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/norm_row.cuh"
#include "halley/cuda/ops/register_norm.cuh"
#include "halley/cuda/ops/team_norm.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/early_launch.cuh"

namespace halley::cuda {
namespace {

/// Keeps the rounded norm where the row was, and its largest magnitude.
struct KeepRounded {
  DType dtype;
  float* row;
  uint32_t* largest;

  __device__ void operator()(int column, float4 values) const {
    values = rounded_to(dtype, values);
    *reinterpret_cast<float4*>(row + column) = values;
    *largest = max(*largest, magnitude_bits(values));
  }
  __device__ void operator()(int column, float value) const {
    value = rounded_to(dtype, value);
    row[column] = value;
    *largest = max(*largest, magnitude_bits(value));
  }
};

/// One block of threads a row, as the kernel of norm_rows(): each thread reads of `row` what it
/// wrote itself.
template <typename X, bool kIsLayerNorm>
__global__ void norm_codes_kernel(NormParams params, RowShape shape, const X* x, float* hidden,
                                  const __grid_constant__ CodeRows y) {
  extern __shared__ float row[];  // [num_columns]
  __shared__ float scratch[kWarpThreads];
  __shared__ uint32_t largest_of_warps[kWarpThreads];
  __shared__ int sums_of_warps[kWarpThreads];
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int64_t m = blockIdx.x;
  const NormSource<X> source = {x + m * shape.block_stride,
                                hidden == nullptr ? nullptr : hidden + m * shape.x_stride, row,
                                shape.is_in_fours};
  uint32_t largest = 0;
  norm_row<kIsLayerNorm>(params, shape, source, scratch, KeepRounded{y.dtype, row, &largest});
  largest = largest_of_block(largest, largest_of_warps);
  const CodeWriter writer = {y, y.codes + m * y.stride, step_of(y.rounding, 0, largest)};
  int sum = 0;
  for_columns(shape.num_columns, [&](int column, bool is_four) {
    sum += is_four ? writer.put_four(column, *reinterpret_cast<const float4*>(row + column))
                   : writer.put(column, row[column]);
  });
  for (int column = shape.num_columns + static_cast<int>(threadIdx.x); column < y.padded_cols;
       column += static_cast<int>(blockDim.x)) {
    writer.row[column] = 0;
  }
  if (y.sums != nullptr) sum = sum_of_block(sum, sums_of_warps);
  if (threadIdx.x != 0) return;
  y.scales[m] = writer.step.scale;
  if (y.sums != nullptr) y.sums[m] = sum;
}

/// By all threads of the block: the row's norm, which for_fours() gives each thread its part of, as
/// codes.
template <typename Norm>
__device__ void write_codes(Norm& norm, int num_columns, const CodeRows& y) {
  __shared__ uint32_t largest_of_warps[kWarpThreads];
  __shared__ int sums_of_warps[kWarpThreads];
  const int64_t m = blockIdx.x;
  uint32_t largest = 0;
  norm.for_fours([&](int, float4& values) {
    values = rounded_to(y.dtype, values);
    largest = max(largest, magnitude_bits(values));
  });
  largest = largest_of_block(largest, largest_of_warps);
  const CodeWriter writer = {y, y.codes + m * y.stride, step_of(y.rounding, 0, largest)};
  int sum = 0;
  norm.for_fours([&](int column, const float4& values) { sum += writer.put_four(column, values); });
  for (int column = num_columns + static_cast<int>(threadIdx.x); column < y.padded_cols;
       column += static_cast<int>(blockDim.x)) {
    writer.row[column] = 0;
  }
  if (y.sums != nullptr) sum = sum_of_block(sum, sums_of_warps);
  if (threadIdx.x != 0) return;
  y.scales[m] = writer.step.scale;
  if (y.sums != nullptr) y.sums[m] = sum;
}

/// The same of few rows that are short.
template <typename X>
__global__ void __launch_bounds__(kRegisterNormThreadsMax)
    few_norms_codes_kernel(const __grid_constant__ NormParams params, RowShape shape, const X* x,
                           float* hidden, const __grid_constant__ CodeRows y) {
  __shared__ float scratch[kWarpThreads];
  let_next_kernel_start();
  const int64_t m = blockIdx.x;
  float* hidden_row = hidden == nullptr ? nullptr : hidden + m * shape.x_stride;
  RegisterNorm<X> norm(params, shape.num_columns, hidden_row);
  wait_for_earlier_kernels();
  norm.run(x + m * shape.block_stride, hidden_row, scratch);
  write_codes(norm, shape.num_columns, y);
}

/// The same of many rows that are short.
template <typename X, int kPasses>
__global__ void __launch_bounds__(kTeamThreads)
    team_norm_codes_kernel(const __grid_constant__ NormParams params, RowShape shape, const X* x,
                           float* hidden, const __grid_constant__ CodeRows y) {
  __shared__ float scratch[kWarpThreads];
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const int64_t m = blockIdx.x;
  TeamNorm<X, kPasses> norm(params, shape.num_columns);
  norm.run(x + m * shape.block_stride, hidden == nullptr ? nullptr : hidden + m * shape.x_stride,
           scratch);
  write_codes(norm, shape.num_columns, y);
}

bool is_in_fours(ConstMatrix x) {
  const auto bytes = static_cast<uintptr_t>(bits_of(x.dtype) / 2);  // of four elements
  return x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % bytes == 0;
}

struct NormOperands {
  ConstMatrix x;
  Matrix hidden;  // or nothing
};

template <typename X, bool kIsLayerNorm>
void launch(const CudaContext& context, const NormParams& params, const NormOperands& operands,
            const CodeRows& y) {
  const ConstMatrix& x = operands.x;
  const bool has_hidden = operands.hidden.data != nullptr;
  const RowShape shape = {
      .num_rows = static_cast<int>(x.num_rows),
      .num_columns = static_cast<int>(x.num_cols),
      .is_in_fours = is_in_fours(x) && (!has_hidden || is_in_fours(operands.hidden)),
      .x_stride = operands.hidden.row_stride,
      .block_stride = x.row_stride,
      .y_stride = y.stride};
  const auto* x_data = reinterpret_cast<const X*>(x.data);
  float* hidden = has_hidden ? operands.hidden.row<float>(0) : nullptr;
  const auto num_rows = static_cast<unsigned>(shape.num_rows);
  const auto num_threads = static_cast<unsigned>(norm_threads(shape.num_columns));
  if constexpr (!kIsLayerNorm) {
    if (takes_register_norm(context, params, shape)) {
      return launch_early(context, "norm of few rows to codes",
                          {.grid = dim3(num_rows), .block = dim3(num_threads)},
                          few_norms_codes_kernel<X>, params, shape, x_data, hidden, y);
    }
  }
  if constexpr (!kIsLayerNorm && !std::is_same_v<X, float>) {
    if (takes_team_norm<X>(params, shape)) {
      return with_team_passes<X>(shape.num_columns, [&](auto passes) {
        launch_early(
            context, "norm of many rows to codes",
            {.grid = dim3(static_cast<unsigned>(shape.num_rows)), .block = dim3(kTeamThreads)},
            team_norm_codes_kernel<X, decltype(passes)::value>, params, shape,
            reinterpret_cast<const X*>(x.data),
            has_hidden ? operands.hidden.row<float>(0) : nullptr, y);
      });
    }
  }
  const size_t row_bytes = static_cast<size_t>(x.num_cols) * sizeof(float);
  const auto kernel = norm_codes_kernel<X, kIsLayerNorm>;
  // 48 KiB, less what lies there beside the row.
  if (row_bytes > size_t{47} * 1024) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(row_bytes)),
               "shared memory of norm");
  }
  launch_early(context, "norm to codes",
               {.grid = dim3(num_rows), .block = dim3(num_threads), .shared_bytes = row_bytes},
               kernel, params, shape, x_data, hidden, y);
}

void run(const CudaContext& context, const NormParams& params, const NormOperands& operands,
         const CodedRows& y) {
  const ConstMatrix& x = operands.x;
  const Matrix& codes = y.rows.codes;
  HALLEY_CHECK(x.num_rows == codes.num_rows && x.num_cols == codes.num_cols, x.num_rows,
               codes.num_rows, x.num_cols, codes.num_cols);
  HALLEY_CHECK(x.num_cols >= 1 && x.num_cols <= kNormColumnsMax, x.num_cols);
  if (x.num_rows == 0) return;
  const CodeRows rows = code_rows_of(y);
  with_float_type(x.dtype, [&](auto type) {
    using X = typename decltype(type)::type;
    if (params.is_layer_norm) {
      launch<X, true>(context, params, operands, rows);
    } else {
      launch<X, false>(context, params, operands, rows);
    }
  });
}

}  // namespace

void norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix x,
               const CodedRows& y) {
  run(context, params, {.x = x, .hidden = {}}, y);
}

void add_norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix block,
                   Matrix hidden, const CodedRows& y) {
  HALLEY_CHECK(hidden.num_rows == block.num_rows && hidden.num_cols == block.num_cols,
               hidden.num_rows, block.num_rows);
  run(context, params, {.x = block, .hidden = hidden}, y);
}

}  // namespace halley::cuda
