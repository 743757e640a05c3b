// Products of a layer's section of few bits: by cuda/gemv where rows are few, otherwise of numbers
// that are decoded for each product.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemv/gemv.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// The most rows for which codes are multiplied as they are.
int64_t gemv_linear_rows_max(int bits);

/// Outputs that are decoded at once, so that their numbers take about kDecodedBytesMax. All parts
/// have as many; the last two overlap.
inline constexpr int64_t kDecodedBytesMax = int64_t{32} << 20;
int64_t decoded_outputs(int64_t N, int64_t K);
/// Where these begin at multiples of 16 bytes.
bool are_decoded_parts_aligned(int64_t N, int64_t K, int64_t first_output, DType y_dtype);

struct GemvLinearOperands {
  /// f16 or bf16, rows at multiples of 16 bytes.
  ConstMatrix x;
  const float* bias = nullptr;              // [N]
  const std::byte* rounded_bias = nullptr;  // of x's type
};

/// `choice` is that of decoded_outputs() in x's type.
void run_gemv_linear(const CudaContext& context, CublasLtGemm& lt, const GemvWeight& weight,
                     const CudaGemmChoice& choice, const GemvLinearOperands& operands, Matrix y);

/// Of the decoded numbers alone.
size_t decoded_bytes(int64_t N, int64_t K);

}  // namespace halley::cuda
