// The kernels of norms and the choice between them, for every way to leave the results.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/ops/norm_row.cuh"
#include "halley/cuda/ops/register_norm.cuh"
#include "halley/cuda/ops/team_norm.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/pdl_launch.cuh"

namespace halley::cuda {

// Out is a parameter of kernels with
//   kName               for messages
//   kTakesTeams<X>      whether there is an instance for many rows of X
//   write_row<kIsLayerNorm>(params, shape, source, scratch)
//                       makes the norm of row blockIdx.x by norm_row(), and leaves it
//   write_fours(norm, num_columns)
//                       leaves the norm of row blockIdx.x that for_fours() gives each thread its
//                       part of
// both by all threads of the block.

/// One block of threads a row. `hidden` null: x alone; else hidden = hidden + x first, and the
/// norm is of that.
template <typename X, bool kIsLayerNorm, typename Out>
__global__ void norm_kernel(NormParams params, NormShape shape, const X* x, float* hidden,
                            const __grid_constant__ Out out) {
  extern __shared__ float row[];  // [num_columns]
  __shared__ float scratch[kWarpThreads];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  const NormSource<X> source = {x + m * shape.block_stride,
                                hidden == nullptr ? nullptr : hidden + m * shape.x_stride, row,
                                shape.is_in_fours};
  out.template write_row<kIsLayerNorm>(params, shape, source, scratch);
}

/// The same of few rows that are short.
template <typename X, typename Out>
__global__ void __launch_bounds__(kRegisterNormThreadsMax)
    few_norms_kernel(const __grid_constant__ NormParams params, NormShape shape, const X* x,
                     float* hidden, const __grid_constant__ Out out) {
  __shared__ float scratch[kWarpThreads];
  griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  float* hidden_row = hidden == nullptr ? nullptr : hidden + m * shape.x_stride;
  RegisterNorm<X> norm(params, shape.num_columns, hidden_row);
  griddepcontrol_wait();
  norm.run(x + m * shape.block_stride, hidden_row, scratch);
  out.write_fours(norm, shape.num_columns);
}

/// The same of many rows that are short.
template <typename X, int kPasses, typename Out>
__global__ void __launch_bounds__(kTeamThreads)
    team_norm_kernel(const __grid_constant__ NormParams params, NormShape shape, const X* x,
                     float* hidden, const __grid_constant__ Out out) {
  __shared__ float scratch[kWarpThreads];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  TeamNorm<X, kPasses> norm(params, shape.num_columns);
  norm.run(x + m * shape.block_stride, hidden == nullptr ? nullptr : hidden + m * shape.x_stride,
           scratch);
  out.write_fours(norm, shape.num_columns);
}

/// Queues the kernel for these rows.
template <bool kIsLayerNorm, typename X, typename Out>
void launch_norm(const CudaContext& context, const NormParams& params, const NormShape& shape,
                 const X* x, float* hidden, const Out& out) {
  const auto num_rows = static_cast<unsigned>(shape.num_rows);
  const auto num_threads = static_cast<unsigned>(norm_threads(shape.num_columns));
  if constexpr (!kIsLayerNorm) {
    if (takes_register_norm(context, params, shape)) {
      return launch_with_pdl(context, Out::kName,
                             {.grid = dim3(num_rows), .block = dim3(num_threads)},
                             few_norms_kernel<X, Out>, params, shape, x, hidden, out);
    }
  }
  if constexpr (!kIsLayerNorm && Out::template kTakesTeams<X>) {
    if (takes_team_norm<X>(params, shape)) {
      return with_team_passes<X>(shape.num_columns, [&](auto passes) {
        launch_with_pdl(context, Out::kName, {.grid = dim3(num_rows), .block = dim3(kTeamThreads)},
                        team_norm_kernel<X, decltype(passes)::value, Out>, params, shape, x, hidden,
                        out);
      });
    }
  }
  const size_t row_bytes = static_cast<size_t>(shape.num_columns) * sizeof(float);
  const auto kernel = norm_kernel<X, kIsLayerNorm, Out>;
  // 48 KiB, less what lies there beside the row.
  if (row_bytes > size_t{47} * 1024) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(row_bytes)),
               "shared memory of norm");
  }
  launch_with_pdl(context, Out::kName,
                  {.grid = dim3(num_rows), .block = dim3(num_threads), .shared_bytes = row_bytes},
                  kernel, params, shape, x, hidden, out);
}

/// Whether all rows begin at multiples of four elements.
inline bool is_in_fours(ConstMatrix x) {
  const auto bytes = static_cast<uintptr_t>(bits_of(x.dtype) / 2);  // of four elements
  return x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % bytes == 0;
}

}  // namespace halley::cuda
