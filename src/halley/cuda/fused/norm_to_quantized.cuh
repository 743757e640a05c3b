// Norms that are quantized where they are computed: the output policies of norm_kernels.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/fused/quant_writer.cuh"
#include "halley/cuda/ops/norm_row.cuh"
#include "halley/cuda/ops/register_norm.cuh"

namespace halley::cuda {

/// Stores the rounded norm over the row, and tracks its largest magnitude.
struct KeepRounded {
  DType dtype;
  float* row;
  uint32_t* largest;

  __device__ void operator()(int column, float4 values) const {
    values = round_to_dtype(dtype, values);
    *reinterpret_cast<float4*>(row + column) = values;
    *largest = max(*largest, magnitude_bits(values));
  }
  __device__ void operator()(int column, float value) const {
    value = round_to_dtype(dtype, value);
    row[column] = value;
    *largest = max(*largest, magnitude_bits(value));
  }
};

/// Quantizes the norm with per-token or static scales.
struct NormToQuantized {
  static constexpr const char* kName = "norm with quantized outputs";
  template <typename X>
  static constexpr bool kTakesTeams = !std::is_same_v<X, float>;

  QuantizedOutputArgs y;

  /// Each thread reads only the elements of the row that it wrote.
  template <bool kIsLayerNorm, typename X>
  __device__ void write_row(const NormParams& params, const NormRowShape& shape,
                            const NormSource<X>& source, float* scratch) const {
    uint32_t largest = 0;
    norm_row<kIsLayerNorm>(params, shape, source, scratch,
                           KeepRounded{y.dtype, source.row, &largest});
    write_quantized(shape.num_columns, largest, [&](const QuantWriter& writer) {
      int sum = 0;
      for_columns(shape.num_columns, [&](int column, bool is_vec4) {
        const float* at = source.row + column;
        sum += is_vec4 ? writer.put_vec4(column, *reinterpret_cast<const float4*>(at))
                       : writer.put(column, *at);
      });
      return sum;
    });
  }
  template <typename Norm>
  __device__ void write_vec4s(Norm& norm, int num_columns) const {
    uint32_t largest = 0;
    norm.for_each_vec4([&](int, float4& values) {
      values = round_to_dtype(y.dtype, values);
      largest = max(largest, magnitude_bits(values));
    });
    write_quantized(num_columns, largest, [&](const QuantWriter& writer) {
      int sum = 0;
      norm.for_each_vec4(
          [&](int column, const float4& values) { sum += writer.put_vec4(column, values); });
      return sum;
    });
  }

 private:
  /// put(writer) writes this thread's quantized values and returns their sum; `largest` is the
  /// thread's largest magnitude.
  template <typename Put>
  __device__ void write_quantized(int num_columns, uint32_t largest, const Put& put) const {
    __shared__ uint32_t largest_of_warps[kWarpThreads];
    __shared__ int sums_of_warps[kWarpThreads];
    const int64_t m = blockIdx.x;
    largest = largest_of_block(largest, largest_of_warps);
    const QuantWriter writer = {y, y.data + m * y.stride, step_of(y.rounding, 0, largest)};
    int sum = put(writer);
    for (int column = num_columns + static_cast<int>(threadIdx.x); column < y.padded_cols;
         column += static_cast<int>(blockDim.x)) {
      writer.row[column] = 0;
    }
    if (y.sums != nullptr) sum = sum_of_block(sum, sums_of_warps);
    if (threadIdx.x != 0) return;
    y.scales[m] = writer.step.scale;
    if (y.sums != nullptr) y.sums[m] = sum;
  }
};

/// Quantizes the norm in blocks. A permutation may mix inputs of different threads, so values go
/// through shared memory.
struct NormToQuantizedBlocks {
  static constexpr const char* kName = "norm with block-quantized outputs";
  template <typename X>
  static constexpr bool kTakesTeams = !std::is_same_v<X, float>;

  QuantizedOutputArgs y;

  template <bool kIsLayerNorm, typename X>
  __device__ void write_row(const NormParams& params, const NormRowShape& shape,
                            const NormSource<X>& source, float* scratch) const {
    uint32_t largest = 0;
    norm_row<kIsLayerNorm>(params, shape, source, scratch,
                           KeepRounded{y.dtype, source.row, &largest});
    write_all(shape.num_columns, source.row);
  }
  template <typename Norm>
  __device__ void write_vec4s(Norm& norm, int num_columns) const {
    __shared__ float4 vectors[kShortRowColumnsMax / 4];
    auto* row = reinterpret_cast<float*>(vectors);
    norm.for_each_vec4([&](int column, const float4& values) {
      *reinterpret_cast<float4*>(row + column) = round_to_dtype(y.dtype, values);
    });
    write_all(num_columns, row);
  }

 private:
  /// Limit of the kernels that call write_vec4s().
  static constexpr int kShortRowColumnsMax = RegisterNorm::kColumnsMax;

  __device__ void write_all(int num_columns, const float* row) const {
    __syncthreads();
    write_blocks(y, blockIdx.x, num_columns, 0, blocks_of(num_columns),
                 [&](int k) { return row[k]; });
  }
};

}  // namespace halley::cuda
