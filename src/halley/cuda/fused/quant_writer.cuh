// Writes quantized rows, with a per-token scale or in blocks, by many threads.
#pragma once

#include "halley/base/check.h"
#include "halley/cuda/fused/quantized_output.h"
#include "halley/cuda/gemm/row_coder.cuh"
#include "halley/cuda/ops/elements.cuh"

namespace halley::cuda {

/// Rounds x to the type and returns it as f32.
__device__ inline float round_to_dtype(DType dtype, float x) {
  if (dtype == DType::kF16) return to_f32(from_f32<__half>(x));
  return dtype == DType::kBf16 ? to_f32(from_f32<__nv_bfloat16>(x)) : x;
}

__device__ inline float4 round_to_dtype(DType dtype, float4 x) {
  return {round_to_dtype(dtype, x.x), round_to_dtype(dtype, x.y), round_to_dtype(dtype, x.z),
          round_to_dtype(dtype, x.w)};
}

__device__ inline uint32_t magnitude_bits(float4 x) {
  return max(max(magnitude_bits(x.x), magnitude_bits(x.y)),
             max(magnitude_bits(x.z), magnitude_bits(x.w)));
}

/// QuantizedOutput as kernel parameters.
struct QuantizedOutputArgs {
  Rounding rounding;
  DType dtype;
  uint8_t* data;
  int64_t stride;
  int padded_cols;
  bool is_vec4_aligned;  // rows of quantized values are aligned for vectors of 4
  float* scales;
  int32_t* sums;         // or null
  int64_t scales_pitch;  // of blocks, as in QuantizedRows
  bool has_blocks;       // kS4S8Block128
};

inline QuantizedOutputArgs quantized_output_args(const QuantizedOutput& y) {
  const QuantizedRows& rows = y.rows;
  const ActivationQuant kind = y.quant.kind;
  const bool has_blocks = kind == ActivationQuant::kS4S8Block128;
  HALLEY_CHECK(kind != ActivationQuant::kNone && kind != ActivationQuant::kE4m3Group128 &&
                   rows.codes.dtype == activation_code_dtype(kind),
               kind, name_of(rows.codes.dtype));
  HALLEY_CHECK(!has_blocks || rows.sums == nullptr, kind);
  HALLEY_CHECK(y.dtype == DType::kF16 || y.dtype == DType::kBf16 || y.dtype == DType::kF32,
               name_of(y.dtype));
  HALLEY_CHECK(rows.padded_cols <= rows.codes.row_stride && rows.scales != nullptr,
               rows.padded_cols, rows.codes.row_stride);
  return {.rounding = rounding_of(y.quant),
          .dtype = y.dtype,
          .data = reinterpret_cast<uint8_t*>(rows.codes.data),
          .stride = rows.codes.row_stride,
          .padded_cols = static_cast<int>(rows.padded_cols),
          .is_vec4_aligned = rows.codes.row_stride % 4 == 0 &&
                             reinterpret_cast<uintptr_t>(rows.codes.data) % 4 == 0,
          .scales = rows.scales,
          .sums = rows.sums,
          .scales_pitch = rows.scales_pitch,
          .has_blocks = has_blocks};
}

inline constexpr int kBlockInputs = 128;  // of kS4S8Block128

__device__ inline Limits limits_of_block(const Rounding& rounding, int begin) {
  return is_s8_block(rounding, begin) ? Limits{-128.0f, 127.0f} : Limits{-8.0f, 7.0f};
}

__host__ __device__ constexpr int blocks_of(int num_columns) {
  return (num_columns + kBlockInputs - 1) / kBlockInputs;
}

/// Writes to one row. put() returns the sum of the quantized integers it wrote.
struct QuantWriter {
  const QuantizedOutputArgs& rows;
  uint8_t* row;
  Step step;
  Limits limits = {-128.0f, 127.0f};

  __device__ int quantize(float x, uint8_t* quantized) const {
    if (rows.rounding.is_e4m3) {
      *quantized = e4m3_code(x, step);
      return 0;
    }
    const int value = integer_code(x, step, limits);
    *quantized = static_cast<uint8_t>(static_cast<int8_t>(value));
    return value;
  }
  __device__ int put(int column, float x) const { return quantize(x, row + column); }
  __device__ int put_vec4(int column, float4 x) const {
    int sum = 0;
    const uint32_t quantized = codes_of_vec4(rows.rounding.is_e4m3, x, step, limits, sum);
    if (rows.is_vec4_aligned) {
      *reinterpret_cast<uint32_t*>(row + column) = quantized;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) row[column + i] = static_cast<uint8_t>(quantized >> 8 * i);
    }
    return sum;
  }
};

__device__ inline float* scale_of_block(const QuantizedOutputArgs& y, int64_t m, int block,
                                        int num_blocks) {
  return y.scales + (y.scales_pitch > 0 ? block * y.scales_pitch + m : m * num_blocks + block);
}

/// Quantizes blocks [begin, end) of row m, which has num_columns inputs. All threads of the CTA,
/// which has whole warps, call it. value_of(k) is the rounded value of the layer's input k.
template <typename ValueOf>
__device__ void write_blocks(const QuantizedOutputArgs& y, int64_t m, int num_columns, int begin,
                             int end, const ValueOf& value_of) {
  constexpr int kLaneInputs = kBlockInputs / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  const int num_blocks = blocks_of(num_columns);
  const int32_t* perm = y.rounding.input_perm;
  uint8_t* row = y.data + m * y.stride;
  for (int block = begin + static_cast<int>(threadIdx.x) / 32; block < end; block += num_warps) {
    float values[kLaneInputs];
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kLaneInputs; ++i) {
      const int k = block * kBlockInputs + lane + 32 * i;
      values[i] = k < num_columns ? value_of(perm == nullptr ? k : perm[k]) : 0.0f;
      largest = max(largest, magnitude_bits(values[i]));
    }
    largest = __reduce_max_sync(~0U, largest);
    const Step step = step_of(y.rounding, block * kBlockInputs, largest);
    const Limits limits = limits_of_block(y.rounding, block * kBlockInputs);
#pragma unroll
    for (int i = 0; i < kLaneInputs; ++i) {
      const int k = block * kBlockInputs + lane + 32 * i;
      if (k >= num_columns && k >= y.padded_cols) continue;
      const int code = k < num_columns ? integer_code(values[i], step, limits) : 0;
      row[k] = static_cast<uint8_t>(static_cast<int8_t>(code));
    }
    if (lane == 0) *scale_of_block(y, m, block, num_blocks) = step.scale;
  }
}

}  // namespace halley::cuda
