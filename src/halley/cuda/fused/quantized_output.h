// Where an operation leaves its results as codes, and how it makes them.
#pragma once

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/quantize_rows.h"

namespace halley::cuda {

/// Results are rounded to `dtype` (f16, bf16 or f32) first, and then as quantize_rows() does, so
/// that an operation that leaves codes and one that leaves numbers, rounded behind it, agree bit
/// for bit.
struct QuantizedOutput {
  DType dtype = DType::kF16;
  /// Of a kind with one scale a row or for all, or in blocks (kS4S8Block128): not kNone or
  /// kE4m3Group128.
  CudaActivationQuant quant = {};
  QuantizedRows rows = {};
};

}  // namespace halley::cuda
