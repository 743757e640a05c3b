// Weights for GEMMs in tiles: cuda/w4ax_gemm and cuda/nested_gemm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"
#include "halley/cuda/weights/device_weight.h"
#include "halley/cuda/weights/rows_weight.h"

namespace halley::cuda {

/// Quantized values of M inputs of a W4Ax GEMM, kS4S8Block128: from the workspace.
QuantizedRows take_w4ax_rows(const CudaContext& context, int64_t M, int64_t K);
/// The most that it takes.
size_t w4ax_rows_bytes(int64_t M, int64_t K);

class W4axLinear final : public DeviceWeight {
 public:
  W4axLinear(const CudaContext& context, W4axWeight weight, W4Kernels kernels,
             bool is_batch_invariant);

  const char* kernel_name() const override;
  std::string describe_kernels() const override;
  WeightInput input(Precision) const override { return {.dtype = DType::kI8}; }
  /// x as quantize_rows() leaves it in take_w4ax_rows().
  void multiply(const CudaContext& context, const WeightOperands& operands,
                Matrix y) const override;
  size_t workspace_bytes(int64_t M, Precision precision) const override;
  std::vector<const DeviceBuffer*> buffers(Precision) const override {
    return {&weight_.codes, &weight_.scales};
  }
  /// Accumulators of blocks are floats: those of one row differ from those of many.
  bool has_row_kernel() const override {
    return kernels_ == W4Kernels::kHopper && !is_batch_invariant_;
  }
  const W4axWeight* w4ax() const override { return &weight_; }

 private:
  W4axWeight weight_;
  int num_sms_;
  W4Kernels kernels_;
  bool is_batch_invariant_;
};

/// Both planes in f16; in low precision the upper one alone, as rows of e4m3.
class NestedLinear final : public DeviceWeight {
 public:
  /// `upper` is bound for low precision, and holds the upper plane of `weight`.
  NestedLinear(const CudaContext& context, NestedWeight weight, std::unique_ptr<RowsWeight> upper,
               bool is_batch_invariant);

  const char* kernel_name() const override;
  const char* low_kernel_name() const override { return upper_->kernel_name(); }
  std::string describe_kernels() const override;
  std::vector<std::string> rejections() const override { return upper_->rejections(); }
  WeightInput input(Precision precision) const override;
  /// x is f16, bf16 or f32, or e4m3 in low precision.
  void multiply(const CudaContext& context, const WeightOperands& operands,
                Matrix y) const override;
  size_t workspace_bytes(int64_t M, Precision precision) const override;
  std::vector<const DeviceBuffer*> buffers(Precision precision) const override;

 private:
  NestedWeight weight_;
  std::unique_ptr<RowsWeight> upper_;
  CudaActivationQuant low_activation_;
  int num_sms_;
  bool is_batch_invariant_;
};

}  // namespace halley::cuda
