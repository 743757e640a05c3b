// Weights of 1 to 3 and of 8 bits that stay packed: cuda/gemv for few rows, else dequantized for
// each GEMM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemv/gemv.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/weights/device_weight.h"
#include "halley/cuda/weights/rows_weight.h"
#include "halley/cuda/weights/weight_form.h"

namespace halley::cuda {

/// The most rows for which codes are multiplied as they are.
int64_t gemv_linear_rows_max(int bits);

/// Outputs that are decoded at once, so that their numbers take about kDecodedBytesMax. All parts
/// have as many; the last two overlap.
inline constexpr int64_t kDecodedBytesMax = int64_t{32} << 20;
int64_t decoded_outputs(int64_t N, int64_t K);
/// Where these begin at multiples of 16 bytes.
bool are_decoded_parts_aligned(int64_t N, int64_t K, int64_t first_output, DType y_dtype);

/// Of the decoded numbers alone.
size_t decoded_bytes(int64_t N, int64_t K);

/// Few rows by cuda/gemv, others by kernels for the dequantized weight.
class GemvLinear final : public DeviceWeight {
 public:
  /// `gemms` multiply decoded_outputs() of the weight in the activations' type.
  GemvLinear(GemvWeight weight, BoundGemms gemms, CublasLtGemm& lt)
      : weight_(std::move(weight)), gemms_(std::move(gemms)), lt_(lt) {}

  const char* kernel_name() const override { return gemv_kernel_name(weight_.shape.bits); }
  std::string describe_kernels() const override;
  std::vector<std::string> rejections() const override {
    return gemms_.for_activations.choice.rejections;
  }
  WeightInput input(Precision precision) const override;
  void multiply(const CudaContext& context, const WeightOperands& operands,
                Matrix y) const override;
  size_t workspace_bytes(int64_t M, Precision precision) const override;
  std::vector<const DeviceBuffer*> buffers(Precision) const override {
    return {&weight_.codes, &weight_.scales, &weight_.zeros};
  }

 private:
  GemvWeight weight_;
  BoundGemms gemms_;
  CublasLtGemm& lt_;
};

}  // namespace halley::cuda
