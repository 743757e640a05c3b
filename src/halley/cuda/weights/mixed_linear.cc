#include "halley/cuda/weights/mixed_linear.h"

#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"
#include "halley/cuda/weights/weight_form.h"

namespace halley::cuda {

MixedLinear::MixedLinear(const CudaContext& context, MixedWeight weight, W4Kernels kernels,
                         DType activation_dtype, bool is_batch_invariant)
    : weight_(std::move(weight)),
      device_(mixed_device(context)),
      kernels_(kernels),
      activation_dtype_(activation_dtype),
      is_batch_invariant_(is_batch_invariant) {}

const char* MixedLinear::kernel_name() const {
  return kernels_ == W4Kernels::kMma ? mma_kernel_name(weight_.kind)
                                     : mixed_kernel_name(weight_.kind);
}

/// Accumulators of s8 are exact: any plan gives the same bits.
bool MixedLinear::has_one_plan() const { return is_batch_invariant_ && !is_s8(weight_.kind); }

MmaPlan MixedLinear::mma_plan(int64_t M) const {
  const MmaShape shape = mma_shape(weight_, M);
  return has_one_plan() ? invariant_mma_plan(shape, device_) : plan_mma_gemm(shape, device_);
}

MixedPlan MixedLinear::mixed_plan(int64_t M) const {
  const MixedShape shape = mixed_shape(weight_, M);
  return has_one_plan() ? invariant_mixed_plan(shape, device_) : plan_mixed_gemm(shape, device_);
}

std::string MixedLinear::describe_kernels() const {
  std::string text = str("outputs by ", kernel_name());
  for (const int64_t M : {1, 16, 128}) {
    text += str(M == 1 ? ": " : "; ", M, M == 1 ? " row " : " rows ");
    text += kernels_ == W4Kernels::kMma ? str(mma_plan(M)) : str(mixed_plan(M));
  }
  return text;
}

WeightInput MixedLinear::input(Precision) const {
  if (is_s8(weight_.kind)) return {.dtype = DType::kI8, .has_sums = weight_.needs_sums()};
  return {.dtype = activation_dtype_, .is_ordered = true};
}

void MixedLinear::multiply(const CudaContext& context, const WeightOperands& operands,
                           Matrix y) const {
  const MixedOperands mixed = {.x = operands.x,
                               .x_scales = operands.x_scales,
                               .bias = operands.bias,
                               // Weights were in place before the layer was; what is ahead on the
                               // stream of a step is a kernel.
                               .starts_early = true};
  if (kernels_ == W4Kernels::kMma) {
    return mma_gemm_planned(context, weight_, mixed, mma_plan(y.num_rows), y);
  }
  mixed_gemm_planned(context, weight_, mixed, mixed_plan(y.num_rows), y);
}

size_t MixedLinear::workspace_bytes(int64_t, Precision) const {
  return round_up(kernels_ == W4Kernels::kMma ? mma_workspace_bytes_max(device_)
                                              : mixed_workspace_bytes_max(device_),
                  DeviceArena::kAlignment);
}

}  // namespace halley::cuda
