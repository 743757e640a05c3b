// Codes of one row with one scale, written by many threads.
#pragma once

#include "halley/base/check.h"
#include "halley/cuda/fused/coded_rows.h"
#include "halley/cuda/gemm/row_coder.cuh"
#include "halley/cuda/ops/elements.cuh"

namespace halley::cuda {

/// A result as the type that it is rounded to first has it.
__device__ inline float rounded_to(DType dtype, float x) {
  if (dtype == DType::kF16) return to_f32(from_f32<__half>(x));
  return dtype == DType::kBf16 ? to_f32(from_f32<__nv_bfloat16>(x)) : x;
}

__device__ inline float4 rounded_to(DType dtype, float4 x) {
  return {rounded_to(dtype, x.x), rounded_to(dtype, x.y), rounded_to(dtype, x.z),
          rounded_to(dtype, x.w)};
}

__device__ inline uint32_t magnitude_bits(float4 x) {
  return max(max(magnitude_bits(x.x), magnitude_bits(x.y)),
             max(magnitude_bits(x.z), magnitude_bits(x.w)));
}

/// CodedRows for kernels.
struct CodeRows {
  Rounding rounding;
  DType dtype;
  uint8_t* codes;
  int64_t stride;
  int padded_cols;
  bool is_in_fours;  // whether rows of codes begin at multiples of four
  float* scales;
  int32_t* sums;  // or null
};

inline CodeRows code_rows_of(const CodedRows& y) {
  const QuantizedRows& rows = y.rows;
  const ActivationQuant kind = y.quant.kind;
  HALLEY_CHECK(kind != ActivationQuant::kNone && kind != ActivationQuant::kE4m3Group128 &&
                   kind != ActivationQuant::kS4S8Block128 &&
                   rows.codes.dtype == activation_code_dtype(kind),
               kind, name_of(rows.codes.dtype));
  HALLEY_CHECK(y.dtype == DType::kF16 || y.dtype == DType::kBf16 || y.dtype == DType::kF32,
               name_of(y.dtype));
  HALLEY_CHECK(rows.padded_cols <= rows.codes.row_stride && rows.scales != nullptr,
               rows.padded_cols, rows.codes.row_stride);
  return {.rounding = rounding_of(y.quant),
          .dtype = y.dtype,
          .codes = reinterpret_cast<uint8_t*>(rows.codes.data),
          .stride = rows.codes.row_stride,
          .padded_cols = static_cast<int>(rows.padded_cols),
          .is_in_fours = rows.codes.row_stride % 4 == 0 &&
                         reinterpret_cast<uintptr_t>(rows.codes.data) % 4 == 0,
          .scales = rows.scales,
          .sums = rows.sums};
}

/// Writes into one row; put() gives back the sum of the codes of integers.
struct CodeWriter {
  const CodeRows& rows;
  uint8_t* row;
  Step step;

  __device__ int code_of(float x, uint8_t* code) const {
    if (rows.rounding.is_e4m3) {
      *code = e4m3_code(x, step);
      return 0;
    }
    const int value = integer_code(x, step, Limits{-128.0f, 127.0f});
    *code = static_cast<uint8_t>(static_cast<int8_t>(value));
    return value;
  }
  __device__ int put(int column, float x) const { return code_of(x, row + column); }
  __device__ int put_four(int column, float4 x) const {
    uchar4 four;
    const int sum = code_of(x.x, &four.x) + code_of(x.y, &four.y) + code_of(x.z, &four.z) +
                    code_of(x.w, &four.w);
    if (rows.is_in_fours) {
      *reinterpret_cast<uchar4*>(row + column) = four;
    } else {
      row[column] = four.x;
      row[column + 1] = four.y;
      row[column + 2] = four.z;
      row[column + 3] = four.w;
    }
    return sum;
  }
};

}  // namespace halley::cuda
