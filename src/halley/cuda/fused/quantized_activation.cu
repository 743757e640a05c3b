#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cooperative_groups.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/fused/quant_writer.cuh"
#include "halley/cuda/fused/quantized_activation.h"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
/// The portable cluster size limit.
constexpr int kClusterSizeMax = 8;
constexpr int kColumnsPerCtaMax =
    static_cast<int>(kQuantizedActivationColumnsMax) / kClusterSizeMax;

struct ActivationShape {
  int num_columns;      // F
  int columns_per_cta;  // a multiple of 4
  int cluster_size;     // CTAs that share a row
  int64_t x_stride;
  bool is_vec4_aligned;
};

/// gate_up: [M, 2F] row-major;  y: [M, F] quantized. One cluster a row: its CTAs exchange the row's
/// largest magnitude, which decides the scale, through distributed shared memory.
template <typename T, bool kHasBlocks>
__global__ void __launch_bounds__(kThreads)
    quantized_activation_kernel(Activation activation, ActivationShape shape, const T* gate_up,
                                const __grid_constant__ QuantizedOutputArgs y) {
  extern __shared__ float values[];  // [columns_per_cta], rounded
  __shared__ uint32_t largest_of_warps[kWarps];
  __shared__ int sums_of_warps[kWarps];
  __shared__ uint32_t largest_of_ctas[kClusterSizeMax];
  __shared__ int sums_of_ctas[kClusterSizeMax];
  ptx::griddepcontrol_launch_dependents();
  const auto cluster = cooperative_groups::this_cluster();
  cluster.barrier_arrive();  // this CTA runs: others may write to its shared memory
  ptx::griddepcontrol_wait();
  const int cta_rank = static_cast<int>(cluster.block_rank());
  const int64_t m = static_cast<int64_t>(blockIdx.x) / shape.cluster_size;
  const int begin = cta_rank * shape.columns_per_cta;
  const int end = min(begin + shape.columns_per_cta, shape.num_columns);
  const T* gate = gate_up + m * shape.x_stride;
  const T* up = gate + shape.num_columns;
  const int step = shape.is_vec4_aligned ? 4 : 1;
  uint32_t largest = 0;
  for (int column = begin + static_cast<int>(threadIdx.x) * step; column < end;
       column += kThreads * step) {
    if (shape.is_vec4_aligned) {
      float4 x = load_vec4(gate + column);
      const float4 factors = load_vec4(up + column);  // both loads are in flight together
      x = {activate(activation, x.x), activate(activation, x.y), activate(activation, x.z),
           activate(activation, x.w)};
      x = round_to_dtype(y.dtype, mul_vec4(x, factors));
      *reinterpret_cast<float4*>(values + column - begin) = x;
      largest = max(largest, magnitude_bits(x));
    } else {
      const float x = activate(activation, to_f32(gate[column]));
      values[column - begin] = round_to_dtype(y.dtype, __fmul_rn(x, to_f32(up[column])));
      largest = max(largest, magnitude_bits(values[column - begin]));
    }
  }
  if constexpr (kHasBlocks) {
    // A quantization block lies in one CTA unless inputs are permuted.
    cluster.barrier_wait();
    const bool has_perm = y.rounding.input_perm != nullptr;
    if (has_perm) {
      cluster.sync();
    } else {
      __syncthreads();
    }
    write_blocks(y, m, shape.num_columns, begin / kBlockInputs, blocks_of(max(begin, end)),
                 [&](int k) {
                   if (!has_perm) return values[k - begin];
                   return *cluster.map_shared_rank(values + k % shape.columns_per_cta,
                                                   k / shape.columns_per_cta);
                 });
    if (has_perm) cluster.sync();  // others may still read this CTA's values
    return;
  }
  largest = largest_of_block(largest, largest_of_warps);
  // Each CTA writes to all others: one barrier, and the reads stay in the SM.
  cluster.barrier_wait();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < shape.cluster_size) {
    *cluster.map_shared_rank(largest_of_ctas + cta_rank, thread) = largest;
  }
  cluster.sync();
  for (int cta = 0; cta < shape.cluster_size; ++cta) {
    largest = max(largest, largest_of_ctas[cta]);
  }
  const QuantWriter writer = {y, y.data + m * y.stride, step_of(y.rounding, 0, largest)};
  int sum = 0;
  // Each thread reads only what it wrote.
  for (int column = begin + static_cast<int>(threadIdx.x) * step; column < end;
       column += kThreads * step) {
    sum += shape.is_vec4_aligned
               ? writer.put_vec4(column, *reinterpret_cast<const float4*>(values + column - begin))
               : writer.put(column, values[column - begin]);
  }
  if (cta_rank == shape.cluster_size - 1) {
    for (int column = shape.num_columns + static_cast<int>(threadIdx.x); column < y.padded_cols;
         column += kThreads) {
      writer.row[column] = 0;
    }
  }
  if (cta_rank == 0 && thread == 0) y.scales[m] = writer.step.scale;
  if (y.sums == nullptr) return;
  sum = sum_of_block(sum, sums_of_warps);
  if (thread == 0) *cluster.map_shared_rank(sums_of_ctas + cta_rank, 0) = sum;
  cluster.sync();
  if (cta_rank != 0 || thread != 0) return;
  int total = 0;
  for (int cta = 0; cta < shape.cluster_size; ++cta) total += sums_of_ctas[cta];
  y.sums[m] = total;
}

constexpr int kVec8sPerThread = 4;
constexpr int64_t kManyRowsColumnsMax = int64_t{8} * kVec8sPerThread * kThreads;
constexpr int64_t kManyRowsMin = 256;

/// Quantizes eight adjacent values from `column` on; half a warp has one block of 128 unpermuted
/// inputs. All lanes call it.
template <typename T>
__device__ void write_vec8(const QuantizedOutputArgs& y, int64_t m, int num_columns, int column,
                           const Vec8<T>& vec8) {
  const bool is_inside = column < num_columns;
  float x[8] = {};
  if (is_inside) vec8.unpack(x);
  uint32_t largest = 0;
#pragma unroll
  for (const float value : x) largest = max(largest, magnitude_bits(value));
#pragma unroll
  for (int step = 8; step > 0; step /= 2) {
    largest = max(largest, __shfl_xor_sync(~0U, largest, step));
  }
  if (!is_inside) return;
  const QuantWriter writer = {y, y.data + m * y.stride, step_of(y.rounding, column, largest),
                              limits_of_block(y.rounding, column)};
  writer.put_vec4(column, {x[0], x[1], x[2], x[3]});
  writer.put_vec4(column + 4, {x[4], x[5], x[6], x[7]});
  if (column % kBlockInputs != 0) return;
  *scale_of_block(y, m, column / kBlockInputs, blocks_of(num_columns)) = writer.step.scale;
}

/// The same for large M, which is memory-bound: one CTA a row, held in registers.
template <typename T, bool kHasBlocks>
__global__ void __launch_bounds__(kThreads, 2)
    many_quantized_activations_kernel(Activation activation, ActivationShape shape,
                                      const T* gate_up,
                                      const __grid_constant__ QuantizedOutputArgs y) {
  __shared__ uint32_t largest_of_warps[kWarps];
  __shared__ int sums_of_warps[kWarps];
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  const T* gate_row = gate_up + m * shape.x_stride;
  const auto column_of = [](int i) { return 8 * (static_cast<int>(threadIdx.x) + i * kThreads); };
  Vec8<T> gate[kVec8sPerThread], up[kVec8sPerThread];
#pragma unroll
  for (int i = 0; i < kVec8sPerThread; ++i) {
    if (column_of(i) >= shape.num_columns) continue;
    gate[i].load(gate_row + column_of(i));
    up[i].load(gate_row + shape.num_columns + column_of(i));
  }
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kVec8sPerThread; ++i) {
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
    store_vec8(values, reinterpret_cast<T*>(&gate[i].bits));
    gate[i].unpack(values);
#pragma unroll
    for (const float value : values) largest = max(largest, magnitude_bits(value));
  }
  if constexpr (kHasBlocks) {
#pragma unroll
    for (int i = 0; i < kVec8sPerThread; ++i) {
      write_vec8(y, m, shape.num_columns, column_of(i), gate[i]);
    }
    for (int column = shape.num_columns + static_cast<int>(threadIdx.x); column < y.padded_cols;
         column += kThreads) {
      y.data[m * y.stride + column] = 0;
    }
    return;
  }
  largest = largest_of_block(largest, largest_of_warps);
  const QuantWriter writer = {y, y.data + m * y.stride, step_of(y.rounding, 0, largest)};
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kVec8sPerThread; ++i) {
    if (column_of(i) >= shape.num_columns) continue;
    float x[8];
    gate[i].unpack(x);
    sum += writer.put_vec4(column_of(i), {x[0], x[1], x[2], x[3]}) +
           writer.put_vec4(column_of(i) + 4, {x[4], x[5], x[6], x[7]});
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

/// Whether M is large enough and rows fit; all vectors of 8 are 16-byte aligned.
template <typename T>
bool is_many(ConstMatrix gate_up) {
  return !std::is_same_v<T, float> && gate_up.num_rows >= kManyRowsMin &&
         gate_up.num_cols / 2 <= kManyRowsColumnsMax && gate_up.num_cols % 16 == 0 &&
         gate_up.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(gate_up.data) % 16 == 0;
}

/// With small M several CTAs share a row.
int cluster_size_for(const CudaContext& context, int64_t M, int64_t F) {
  int ctas = 1;
  while (F > int64_t{ctas} * kColumnsPerCtaMax) ctas *= 2;
  while (ctas < kClusterSizeMax && M * ctas < context.device.num_sms) ctas *= 2;
  return ctas;
}

template <typename T, bool kHasBlocks>
void launch(const CudaContext& context, Activation activation, ConstMatrix gate_up,
            const QuantizedOutputArgs& y) {
  const int64_t M = gate_up.num_rows, F = gate_up.num_cols / 2;
  const auto* data = reinterpret_cast<const T*>(gate_up.data);
  if constexpr (!std::is_same_v<T, float>) {
    if (is_many<T>(gate_up) && y.rounding.input_perm == nullptr) {
      const ActivationShape shape = {.num_columns = static_cast<int>(F),
                                     .columns_per_cta = static_cast<int>(F),
                                     .cluster_size = 1,
                                     .x_stride = gate_up.row_stride,
                                     .is_vec4_aligned = true};
      return launch_kernel(context, "large-M activation with quantized outputs",
                           {.grid = dim3(static_cast<unsigned>(M)), .block = dim3(kThreads)},
                           many_quantized_activations_kernel<T, kHasBlocks>, activation, shape,
                           data, y);
    }
  }
  const int cluster_size = cluster_size_for(context, M, F);
  const int64_t columns =
      round_up(ceil_div<int64_t>(F, cluster_size), int64_t{kHasBlocks ? kBlockInputs : 4});
  const auto vec4_bytes = static_cast<uintptr_t>(4 * sizeof(T));
  const ActivationShape shape = {
      .num_columns = static_cast<int>(F),
      .columns_per_cta = static_cast<int>(columns),
      .cluster_size = cluster_size,
      .x_stride = gate_up.row_stride,
      .is_vec4_aligned = F % 4 == 0 && gate_up.row_stride % 4 == 0 &&
                         reinterpret_cast<uintptr_t>(gate_up.data) % vec4_bytes == 0};
  launch_kernel(context, "activation with quantized outputs",
                {.grid = dim3(static_cast<unsigned>(M * cluster_size)),
                 .block = dim3(kThreads),
                 .shared_bytes = static_cast<size_t>(columns) * sizeof(float),
                 .cluster_size = static_cast<unsigned>(cluster_size)},
                quantized_activation_kernel<T, kHasBlocks>, activation, shape, data, y);
}

}  // namespace

void gated_activation(const CudaContext& context, Activation activation, ConstMatrix gate_up,
                      const QuantizedOutput& y) {
  const Matrix& quantized = y.rows.codes;
  HALLEY_CHECK(gate_up.num_cols == 2 * quantized.num_cols &&
                   gate_up.num_rows == quantized.num_rows && gate_up.dtype == y.dtype,
               gate_up.num_cols, quantized.num_cols, gate_up.num_rows, quantized.num_rows);
  HALLEY_CHECK(quantized.num_cols <= kQuantizedActivationColumnsMax, quantized.num_cols);
  if (gate_up.num_rows == 0) return;
  const QuantizedOutputArgs rows = quantized_output_args(y);
  with_float_type(gate_up.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (rows.has_blocks) return launch<T, true>(context, activation, gate_up, rows);
    launch<T, false>(context, activation, gate_up, rows);
  });
}

}  // namespace halley::cuda
