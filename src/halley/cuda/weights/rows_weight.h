// Weights as rows of floats or of 8-bit values: GEMMs of cuda/gemm.
#pragma once

#include <string>
#include <vector>

#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/weights/device_weight.h"

namespace halley::cuda {

/// A kernel for one type of outputs.
struct BoundGemm {
  CudaGemmProblem problem = {};
  CudaGemmChoice choice = {};

  size_t workspace_bytes(int64_t M) const;
  /// "f16 outputs by ..., not ...".
  std::string describe() const;
};

/// Kernels for outputs of the activations' type, and of f32.
struct BoundGemms {
  /// Problems of these two differ in the type of y alone.
  BoundGemms() = default;
  BoundGemms(CudaGemmProblem problem, DType activation_dtype, bool is_y_aligned,
             bool is_f32_aligned, CublasLtGemm& lt);

  const BoundGemm& for_dtype(DType y_dtype) const {
    return y_dtype == for_activations.problem.y_dtype ? for_activations : for_f32;
  }
  size_t workspace_bytes(int64_t M) const;
  std::string describe() const;

  BoundGemm for_activations = {};
  BoundGemm for_f32 = {};
};

class RowsWeight final : public DeviceWeight {
 public:
  /// Rows alone, which no kernel is bound to: multiply() may not be called.
  RowsWeight(DeviceBuffer memory, ConstMatrix rows) : memory_(std::move(memory)), w_(rows) {}

  const char* kernel_name() const override { return gemms_.for_activations.choice.kernel->name; }
  std::string describe_kernels() const override { return gemms_.describe(); }
  std::vector<std::string> rejections() const override {
    return gemms_.for_activations.choice.rejections;
  }
  WeightInput input(Precision precision) const override;
  void multiply(const CudaContext& context, const WeightOperands& operands,
                Matrix y) const override;
  size_t workspace_bytes(int64_t M, Precision precision) const override;
  std::vector<const DeviceBuffer*> buffers(Precision) const override { return {&memory_}; }
  const RowsWeight* rows() const override { return this; }

  /// [N, K] of f16, bf16, f32, f8_e4m3 or i8; padded as CudaGemmOperands says where it is
  /// quantized.
  ConstMatrix w() const { return w_; }
  const RowScales& scales() const { return scales_; }  // of the weight
  const BoundGemm& for_activations() const { return gemms_.for_activations; }

  /// To load: scales and offsets of the weight, a static scale of x (null: scales of tokens), and
  /// the kernels.
  RowScales& mutable_scales() { return scales_; }
  const float*& static_x_scale() { return static_x_scale_; }
  void bind(BoundGemms gemms, CublasLtGemm& lt) {
    gemms_ = std::move(gemms);
    lt_ = &lt;
  }

 private:
  DeviceBuffer memory_;
  ConstMatrix w_;
  RowScales scales_ = {};
  const float* static_x_scale_ = nullptr;
  BoundGemms gemms_ = {};
  CublasLtGemm* lt_ = nullptr;
};

}  // namespace halley::cuda
