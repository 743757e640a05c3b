// The norm kernels and the dispatch between them, for every kind of output.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/ops/norm_row.cuh"
#include "halley/cuda/ops/register_norm.cuh"
#include "halley/cuda/ops/team_norm.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

// Out is the kernels' output policy. It has
//   kName               the launch's name in messages
//   kTakesTeams<X>      whether team_norm_kernel is instantiated for X
//   write_row<kIsLayerNorm>(params, shape, source, scratch)
//                       computes the norm of row blockIdx.x by norm_row() and stores it
//   write_vec4s(norm, num_columns)
//                       stores the norm of row blockIdx.x, each thread the vectors that
//                       for_each_vec4() gives it
// All threads of the CTA call both.

/// One CTA a row, x: [M, K] row-major, held in shared memory. `hidden` null: norm(x); otherwise
/// hidden += x first, and norm(hidden).
template <typename X, bool kIsLayerNorm, typename Out>
__global__ void norm_kernel(NormParams params, NormRowShape shape, const X* x, float* hidden,
                            const __grid_constant__ Out out) {
  extern __shared__ float row[];  // [num_columns]
  __shared__ float scratch[kWarpThreads];
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  const NormSource<X> source = {x + m * shape.block_stride,
                                hidden == nullptr ? nullptr : hidden + m * shape.x_stride, row,
                                shape.is_vec4_aligned};
  out.template write_row<kIsLayerNorm>(params, shape, source, scratch);
}

/// The same for small M and short rows, which stay in registers, and any Block (register_norm.cuh).
template <typename Block, typename Out>
__global__ void __launch_bounds__(kRegisterNormThreadsMax)
    register_norm_kernel(const __grid_constant__ NormParams params, NormRowShape shape,
                         const __grid_constant__ Block block, float* hidden,
                         const __grid_constant__ Out out) {
  __shared__ float scratch[kWarpThreads];
  block.launch_dependents();
  const int64_t m = blockIdx.x;
  float* hidden_row = hidden == nullptr ? nullptr : hidden + m * shape.x_stride;
  RegisterNorm norm(params, shape.num_columns, hidden_row);
  ptx::griddepcontrol_wait();
  norm.run(block.row(m, shape), hidden_row, scratch);
  out.write_vec4s(norm, shape.num_columns);
}

/// The same for large M and short rows.
template <typename X, int kPasses, typename Out>
__global__ void __launch_bounds__(kTeamThreads)
    team_norm_kernel(const __grid_constant__ NormParams params, NormRowShape shape, const X* x,
                     float* hidden, const __grid_constant__ Out out) {
  __shared__ float scratch[kWarpThreads];
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  TeamNorm<X, kPasses> norm(params, shape.num_columns);
  norm.run(x + m * shape.block_stride, hidden == nullptr ? nullptr : hidden + m * shape.x_stride,
           scratch);
  out.write_vec4s(norm, shape.num_columns);
}

/// Launches the kernel for these rows.
template <bool kIsLayerNorm, typename X, typename Out>
void launch_norm(const CudaContext& context, const NormParams& params, const NormRowShape& shape,
                 const X* x, float* hidden, const Out& out) {
  const auto num_rows = static_cast<unsigned>(shape.num_rows);
  const auto num_threads = static_cast<unsigned>(norm_threads(shape.num_columns));
  if constexpr (!kIsLayerNorm) {
    if (takes_register_norm(context, params, shape)) {
      return launch_kernel(
          context, Out::kName, {.grid = dim3(num_rows), .block = dim3(num_threads)},
          register_norm_kernel<BlockInMemory<X>, Out>, params, shape, {x}, hidden, out);
    }
  }
  if constexpr (!kIsLayerNorm && Out::template kTakesTeams<X>) {
    if (takes_team_norm<X>(params, shape)) {
      return with_team_passes<X>(shape.num_columns, [&](auto passes) {
        launch_kernel(context, Out::kName, {.grid = dim3(num_rows), .block = dim3(kTeamThreads)},
                      team_norm_kernel<X, decltype(passes)::value, Out>, params, shape, x, hidden,
                      out);
      });
    }
  }
  const size_t row_bytes = static_cast<size_t>(shape.num_columns) * sizeof(float);
  const auto kernel = norm_kernel<X, kIsLayerNorm, Out>;
  launch_kernel(context, Out::kName,
                {.grid = dim3(num_rows), .block = dim3(num_threads), .shared_bytes = row_bytes},
                kernel, params, shape, x, hidden, out);
}

/// Whether all rows are aligned for vectors of 4 elements.
inline bool is_vec4_aligned(ConstMatrix x) {
  const auto bytes = static_cast<uintptr_t>(bits_of(x.dtype) / 2);  // of a vector of 4
  return x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % bytes == 0;
}

/// The shape for x and the residual stream, which may be empty.
inline NormRowShape norm_row_shape(ConstMatrix x, Matrix hidden) {
  return {
      .num_rows = static_cast<int>(x.num_rows),
      .num_columns = static_cast<int>(x.num_cols),
      .is_vec4_aligned = is_vec4_aligned(x) && (hidden.data == nullptr || is_vec4_aligned(hidden)),
      .x_stride = hidden.row_stride,
      .block_stride = x.row_stride};
}

}  // namespace halley::cuda
