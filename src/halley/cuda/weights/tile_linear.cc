#include "halley/cuda/weights/tile_linear.h"

#include <algorithm>

#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"

namespace halley::cuda {
namespace {

size_t of_arena(int64_t num_bytes) {
  return round_up(static_cast<size_t>(num_bytes), DeviceArena::kAlignment);
}

TilePlan plan_of(const CudaContext& context, const TileFamily& family, const ProductShape& shape,
                 bool is_batch_invariant) {
  const CudaDeviceInfo& device = context.device;
  return is_batch_invariant ? plan_invariant_tiles(family, shape, device)
                            : plan_tiles(family, shape, device);
}

size_t product_bytes(int num_sms, const TileFamily& family) {
  return round_up(tile_workspace_bytes_max(family, num_sms), DeviceArena::kAlignment);
}

}  // namespace

void run_nested_linear(const CudaContext& context, const NestedWeight& weight,
                       const TileLinearInputs& inputs, Matrix y) {
  const size_t mark = context.workspace.mark();
  ConstMatrix x = inputs.x;
  if (x.dtype != DType::kF16 || !has_wide_rows(x)) {
    const int64_t stride = round_up<int64_t>(x.num_cols, 8);
    const Matrix rounded = {context.workspace.take(static_cast<size_t>(x.num_rows * stride) * 2),
                            DType::kF16, x.num_rows, x.num_cols, stride};
    round_rows(context, {}, x, rounded);
    x = rounded;
  }
  const TilePlan plan = plan_of(context, nested_family(), {x.num_rows, weight.N(), weight.K()},
                                inputs.is_batch_invariant);
  // Weights were in place before the layer was; what is ahead on the stream of a step is a kernel.
  nested_gemm_planned(context, weight, {.x = x, .bias = inputs.bias, .starts_early = true}, plan,
                      y);
  context.workspace.release(mark);
}

size_t nested_linear_bytes(int num_sms, const NestedWeight& weight, int64_t M) {
  return of_arena(M * round_up<int64_t>(weight.K(), 8) * 2) +
         product_bytes(num_sms, nested_family());
}

QuantizedRows take_w4ax_rows(const CudaContext& context, int64_t M, int64_t K) {
  const int64_t stride = round_up(K, kGemmPadding), pitch = round_up(M, kW4axTokenPadding);
  const int64_t blocks = ceil_div(K, activation_group_inputs(ActivationQuant::kS4S8Block128, K));
  auto* codes = context.workspace.take(static_cast<size_t>(M * stride));
  auto* scales = context.workspace.take<float>(static_cast<size_t>(blocks * pitch));
  return {.codes = {codes, DType::kI8, M, K, stride},
          .padded_cols = K,
          .scales = scales,
          .scales_pitch = pitch};
}

size_t w4ax_rows_bytes(int64_t M, int64_t K) {
  const int64_t blocks = ceil_div(K, activation_group_inputs(ActivationQuant::kS4S8Block128, K));
  return of_arena(M * round_up(K, kGemmPadding)) +
         of_arena(blocks * round_up(M, kW4axTokenPadding) * 4);
}

void run_w4ax_linear(const CudaContext& context, const W4axWeight& weight,
                     const TileLinearInputs& inputs, Matrix y) {
  const size_t mark = context.workspace.mark();
  const int64_t M = inputs.x.num_rows;
  const W4axOperands operands = {.x = inputs.x,
                                 .x_scales = inputs.x_scales,
                                 .x_scales_pitch = round_up(M, kW4axTokenPadding),
                                 .bias = inputs.bias,
                                 .starts_early = true};
  if (inputs.w4_kernels == W4Kernels::kMma) {
    const MmaShape shape = mma_shape(weight, M);
    const MixedDevice device = mixed_device(context);
    mma_w4ax_gemm_planned(context, weight,
                          {.operands = operands, .num_s8_inputs = inputs.num_s8_inputs},
                          inputs.is_batch_invariant ? invariant_mma_plan(shape, device)
                                                    : plan_mma_gemm(shape, device),
                          y);
  } else if (is_w4ax_narrow(context, weight, M) && !inputs.is_batch_invariant) {
    w4ax_gemm_narrow(context, weight, operands, y);
  } else {
    const TilePlan plan =
        plan_of(context, w4ax_family(), {M, weight.N, weight.K}, inputs.is_batch_invariant);
    w4ax_gemm_planned(context, weight, operands, plan, y);
  }
  context.workspace.release(mark);
}

size_t w4ax_linear_bytes(int num_sms, W4Kernels kernels) {
  const MixedDevice device = {.num_sms = num_sms};
  return kernels == W4Kernels::kMma
             ? of_arena(static_cast<int64_t>(mma_workspace_bytes_max(device)))
             : product_bytes(num_sms, w4ax_family());
}

}  // namespace halley::cuda
