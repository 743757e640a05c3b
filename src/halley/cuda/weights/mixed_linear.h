// Weights of 4 and 8 bits that stay packed: cuda/mixed_gemm, and cuda/mma_gemm before Hopper.
#pragma once

#include <string>
#include <vector>

#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mma_gemm/mma_plan.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"
#include "halley/cuda/weights/device_weight.h"

namespace halley::cuda {

class MixedLinear final : public DeviceWeight {
 public:
  MixedLinear(const CudaContext& context, MixedWeight weight, W4Kernels kernels,
              DType activation_dtype, bool is_batch_invariant);

  const char* kernel_name() const override;
  std::string describe_kernels() const override;
  WeightInput input(Precision precision) const override;
  void multiply(const CudaContext& context, const WeightOperands& operands,
                Matrix y) const override;
  size_t workspace_bytes(int64_t M, Precision precision) const override;
  std::vector<const DeviceBuffer*> buffers(Precision) const override {
    return {&weight_.chunks, &weight_.scales};
  }
  /// Accumulators of s8 are exact; others differ from those of many rows.
  bool has_row_kernel() const override { return kernels_ == W4Kernels::kHopper && !has_one_plan(); }
  const MixedWeight* mixed() const override { return &weight_; }

 private:
  bool has_one_plan() const;
  MmaPlan mma_plan(int64_t M) const;
  MixedPlan mixed_plan(int64_t M) const;

  MixedWeight weight_;
  MixedDevice device_;
  W4Kernels kernels_;
  DType activation_dtype_;
  bool is_batch_invariant_;
};

}  // namespace halley::cuda
