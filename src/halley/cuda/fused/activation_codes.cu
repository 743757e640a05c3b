#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cooperative_groups.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/fused/activation_codes.h"
#include "halley/cuda/fused/code_writer.cuh"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/pdl_launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
/// Of all GPUs that have clusters.
constexpr int kClusterBlocksMax = 8;
constexpr int kColumnsOfBlockMax = static_cast<int>(kCodedActivationColumnsMax) / kClusterBlocksMax;

struct ActivationShape {
  int num_columns;       // F
  int columns_of_block;  // a multiple of 4
  int cluster_blocks;    // that share a row
  int64_t x_stride;
  bool is_in_fours;
};

/// A cluster of blocks a row: what a row's codes depend on, its largest magnitude, is exchanged
/// through shared memory.
template <typename T, bool kHasBlocks>
__global__ void __launch_bounds__(kThreads)
    activation_codes_kernel(Activation activation, ActivationShape shape, const T* gate_up,
                            const __grid_constant__ CodeRows y) {
  extern __shared__ float values[];  // [columns_of_block], rounded
  __shared__ uint32_t largest_of_warps[kWarps];
  __shared__ int sums_of_warps[kWarps];
  __shared__ uint32_t largest_of_blocks[kClusterBlocksMax];
  __shared__ int sums_of_blocks[kClusterBlocksMax];
  griddepcontrol_launch_dependents();
  const auto cluster = cooperative_groups::this_cluster();
  cluster.barrier_arrive();  // this block runs: others may write into its shared memory
  griddepcontrol_wait();
  const int rank = static_cast<int>(cluster.block_rank());
  const int64_t m = static_cast<int64_t>(blockIdx.x) / shape.cluster_blocks;
  const int begin = rank * shape.columns_of_block;
  const int end = min(begin + shape.columns_of_block, shape.num_columns);
  const T* gate = gate_up + m * shape.x_stride;
  const T* up = gate + shape.num_columns;
  const int step = shape.is_in_fours ? 4 : 1;
  uint32_t largest = 0;
  for (int column = begin + static_cast<int>(threadIdx.x) * step; column < end;
       column += kThreads * step) {
    if (shape.is_in_fours) {
      float4 x = load_four(gate + column);
      const float4 factors = load_four(up + column);  // both on their way together
      x = {activate(activation, x.x), activate(activation, x.y), activate(activation, x.z),
           activate(activation, x.w)};
      x = round_to_dtype(y.dtype, product_of(x, factors));
      *reinterpret_cast<float4*>(values + column - begin) = x;
      largest = max(largest, magnitude_bits(x));
    } else {
      const float x = activate(activation, to_f32(gate[column]));
      values[column - begin] = round_to_dtype(y.dtype, __fmul_rn(x, to_f32(up[column])));
      largest = max(largest, magnitude_bits(values[column - begin]));
    }
  }
  if constexpr (kHasBlocks) {
    // Blocks are whole in a block of threads, but where inputs have an order.
    cluster.barrier_wait();
    const bool has_order = y.rounding.input_perm != nullptr;
    if (has_order) {
      cluster.sync();
    } else {
      __syncthreads();
    }
    write_blocks(y, m, shape.num_columns, begin / kBlockInputs, blocks_of(max(begin, end)),
                 [&](int k) {
                   if (!has_order) return values[k - begin];
                   return *cluster.map_shared_rank(values + k % shape.columns_of_block,
                                                   k / shape.columns_of_block);
                 });
    if (has_order) cluster.sync();  // others may still read what is here
    return;
  }
  largest = largest_of_block(largest, largest_of_warps);
  // Each block tells all: one barrier, and reads that do not leave the SM.
  cluster.barrier_wait();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < shape.cluster_blocks) {
    *cluster.map_shared_rank(largest_of_blocks + rank, thread) = largest;
  }
  cluster.sync();
  for (int block = 0; block < shape.cluster_blocks; ++block) {
    largest = max(largest, largest_of_blocks[block]);
  }
  const CodeWriter writer = {y, y.codes + m * y.stride, step_of(y.rounding, 0, largest)};
  int sum = 0;
  // Each thread reads what it wrote itself.
  for (int column = begin + static_cast<int>(threadIdx.x) * step; column < end;
       column += kThreads * step) {
    sum += shape.is_in_fours
               ? writer.put_four(column, *reinterpret_cast<const float4*>(values + column - begin))
               : writer.put(column, values[column - begin]);
  }
  if (rank == shape.cluster_blocks - 1) {
    for (int column = shape.num_columns + static_cast<int>(threadIdx.x); column < y.padded_cols;
         column += kThreads) {
      writer.row[column] = 0;
    }
  }
  if (rank == 0 && thread == 0) y.scales[m] = writer.step.scale;
  if (y.sums == nullptr) return;
  sum = sum_of_block(sum, sums_of_warps);
  if (thread == 0) *cluster.map_shared_rank(sums_of_blocks + rank, 0) = sum;
  cluster.sync();
  if (rank != 0 || thread != 0) return;
  int total = 0;
  for (int block = 0; block < shape.cluster_blocks; ++block) total += sums_of_blocks[block];
  y.sums[m] = total;
}

constexpr int kEightsOfThread = 4;
constexpr int64_t kManyRowsColumnsMax = int64_t{8} * kEightsOfThread * kThreads;
constexpr int64_t kManyRowsMin = 256;

/// Eight neighbours from `column` on, half a warp those of a block of 128 inputs without an order:
/// by all lanes.
template <typename T>
__device__ void write_eight(const CodeRows& y, int64_t m, int num_columns, int column,
                            const Eight<T>& eight) {
  const bool is_inside = column < num_columns;
  float x[8] = {};
  if (is_inside) eight.unpack(x);
  uint32_t largest = 0;
#pragma unroll
  for (const float value : x) largest = max(largest, magnitude_bits(value));
#pragma unroll
  for (int step = 8; step > 0; step /= 2) {
    largest = max(largest, __shfl_xor_sync(~0U, largest, step));
  }
  if (!is_inside) return;
  const CodeWriter writer = {y, y.codes + m * y.stride, step_of(y.rounding, column, largest),
                             limits_of_block(y.rounding, column)};
  writer.put_four(column, {x[0], x[1], x[2], x[3]});
  writer.put_four(column + 4, {x[4], x[5], x[6], x[7]});
  if (column % kBlockInputs != 0) return;
  *scale_of_block(y, m, column / kBlockInputs, blocks_of(num_columns)) = writer.step.scale;
}

/// The same for many rows, whose time is that of memory: a block a row, which stays in registers.
template <typename T, bool kHasBlocks>
__global__ void __launch_bounds__(kThreads, 2)
    many_activations_codes_kernel(Activation activation, ActivationShape shape, const T* gate_up,
                                  const __grid_constant__ CodeRows y) {
  __shared__ uint32_t largest_of_warps[kWarps];
  __shared__ int sums_of_warps[kWarps];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  const T* gate_row = gate_up + m * shape.x_stride;
  const auto column_of = [](int i) { return 8 * (static_cast<int>(threadIdx.x) + i * kThreads); };
  Eight<T> gate[kEightsOfThread], up[kEightsOfThread];
#pragma unroll
  for (int i = 0; i < kEightsOfThread; ++i) {
    if (column_of(i) >= shape.num_columns) continue;
    gate[i].load(gate_row + column_of(i));
    up[i].load(gate_row + shape.num_columns + column_of(i));
  }
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kEightsOfThread; ++i) {
    if (column_of(i) >= shape.num_columns) continue;
    float values[8], factors[8];
    gate[i].unpack(values);
    up[i].unpack(factors);
    with_activation(activation, [&](auto known) {
#pragma unroll
      for (float& value : values) value = activate(decltype(known)::value, value);
    });
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] = __fmul_rn(values[j], factors[j]);
    store_eight(values, reinterpret_cast<T*>(&gate[i].bits));
    gate[i].unpack(values);
#pragma unroll
    for (const float value : values) largest = max(largest, magnitude_bits(value));
  }
  if constexpr (kHasBlocks) {
#pragma unroll
    for (int i = 0; i < kEightsOfThread; ++i) {
      write_eight(y, m, shape.num_columns, column_of(i), gate[i]);
    }
    for (int column = shape.num_columns + static_cast<int>(threadIdx.x); column < y.padded_cols;
         column += kThreads) {
      y.codes[m * y.stride + column] = 0;
    }
    return;
  }
  largest = largest_of_block(largest, largest_of_warps);
  const CodeWriter writer = {y, y.codes + m * y.stride, step_of(y.rounding, 0, largest)};
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kEightsOfThread; ++i) {
    if (column_of(i) >= shape.num_columns) continue;
    float x[8];
    gate[i].unpack(x);
    sum += writer.put_four(column_of(i), {x[0], x[1], x[2], x[3]}) +
           writer.put_four(column_of(i) + 4, {x[4], x[5], x[6], x[7]});
  }
  for (int column = shape.num_columns + static_cast<int>(threadIdx.x); column < y.padded_cols;
       column += kThreads) {
    writer.row[column] = 0;
  }
  if (y.sums != nullptr) sum = sum_of_block(sum, sums_of_warps);
  if (threadIdx.x != 0) return;
  y.scales[m] = writer.step.scale;
  if (y.sums != nullptr) y.sums[m] = sum;
}

/// Whether the rows are many and fit; their eights begin at multiples of 16 bytes.
template <typename T>
bool is_many(ConstMatrix gate_up) {
  return !std::is_same_v<T, float> && gate_up.num_rows >= kManyRowsMin &&
         gate_up.num_cols / 2 <= kManyRowsColumnsMax && gate_up.num_cols % 16 == 0 &&
         gate_up.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(gate_up.data) % 16 == 0;
}

/// Few rows are shared by many blocks.
int cluster_blocks_for(const CudaContext& context, int64_t M, int64_t F) {
  int blocks = 1;
  while (F > int64_t{blocks} * kColumnsOfBlockMax) blocks *= 2;
  while (blocks < kClusterBlocksMax && M * blocks < context.device.num_sms) blocks *= 2;
  return blocks;
}

template <typename T, bool kHasBlocks>
void launch(const CudaContext& context, Activation activation, ConstMatrix gate_up,
            const CodeRows& y) {
  const int64_t M = gate_up.num_rows, F = gate_up.num_cols / 2;
  const auto* data = reinterpret_cast<const T*>(gate_up.data);
  if constexpr (!std::is_same_v<T, float>) {
    if (is_many<T>(gate_up) && y.rounding.input_perm == nullptr) {
      const ActivationShape shape = {.num_columns = static_cast<int>(F),
                                     .columns_of_block = static_cast<int>(F),
                                     .cluster_blocks = 1,
                                     .x_stride = gate_up.row_stride,
                                     .is_in_fours = true};
      return launch_with_pdl(context, "activation of many rows to codes",
                             {.grid = dim3(static_cast<unsigned>(M)), .block = dim3(kThreads)},
                             many_activations_codes_kernel<T, kHasBlocks>, activation, shape, data,
                             y);
    }
  }
  const int cluster_blocks = cluster_blocks_for(context, M, F);
  const int64_t columns =
      round_up(ceil_div<int64_t>(F, cluster_blocks), int64_t{kHasBlocks ? kBlockInputs : 4});
  const auto four_bytes = static_cast<uintptr_t>(4 * sizeof(T));
  const ActivationShape shape = {
      .num_columns = static_cast<int>(F),
      .columns_of_block = static_cast<int>(columns),
      .cluster_blocks = cluster_blocks,
      .x_stride = gate_up.row_stride,
      .is_in_fours = F % 4 == 0 && gate_up.row_stride % 4 == 0 &&
                     reinterpret_cast<uintptr_t>(gate_up.data) % four_bytes == 0};
  launch_with_pdl(context, "activation to codes",
                  {.grid = dim3(static_cast<unsigned>(M * cluster_blocks)),
                   .block = dim3(kThreads),
                   .shared_bytes = static_cast<size_t>(columns) * sizeof(float),
                   .cluster_blocks = static_cast<unsigned>(cluster_blocks)},
                  activation_codes_kernel<T, kHasBlocks>, activation, shape, data, y);
}

}  // namespace

void gated_activation(const CudaContext& context, Activation activation, ConstMatrix gate_up,
                      const CodedRows& y) {
  const Matrix& codes = y.rows.codes;
  HALLEY_CHECK(gate_up.num_cols == 2 * codes.num_cols && gate_up.num_rows == codes.num_rows &&
                   gate_up.dtype == y.dtype,
               gate_up.num_cols, codes.num_cols, gate_up.num_rows, codes.num_rows);
  HALLEY_CHECK(codes.num_cols <= kCodedActivationColumnsMax, codes.num_cols);
  if (gate_up.num_rows == 0) return;
  const CodeRows rows = code_rows_of(y);
  with_float_type(gate_up.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (rows.has_blocks) return launch<T, true>(context, activation, gate_up, rows);
    launch<T, false>(context, activation, gate_up, rows);
  });
}

}  // namespace halley::cuda
