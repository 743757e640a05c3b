// The quantized output of a fused operation: its destination and quantization scheme.
#pragma once

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/quantize_rows.h"

namespace halley::cuda {

/// The operation rounds results to `dtype` (f16, bf16 or f32) and then quantizes them as
/// quantize_rows() does, so that the fused operation agrees bit for bit with the unfused pair.
struct QuantizedOutput {
  DType dtype = DType::kF16;
  /// Per-token, per-tensor or in blocks (kS4S8Block128): not kNone or kE4m3Group128.
  CudaActivationQuant quant = {};
  QuantizedRows rows = {};
};

}  // namespace halley::cuda
