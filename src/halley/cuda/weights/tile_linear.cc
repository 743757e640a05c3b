#include "halley/cuda/weights/tile_linear.h"

#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"
#include "halley/cuda/weights/weight_form.h"

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

W4axLinear::W4axLinear(const CudaContext& context, W4axWeight weight, W4Kernels kernels,
                       bool is_batch_invariant)
    : weight_(std::move(weight)),
      num_sms_(context.device.num_sms),
      kernels_(kernels),
      is_batch_invariant_(is_batch_invariant) {}

const char* W4axLinear::kernel_name() const {
  return kernels_ == W4Kernels::kMma ? kW4axMmaKernelName : kW4axKernelName;
}

std::string W4axLinear::describe_kernels() const { return str("outputs by ", kernel_name()); }

void W4axLinear::multiply(const CudaContext& context, const WeightOperands& operands,
                          Matrix y) const {
  const size_t mark = context.workspace.mark();
  const int64_t M = operands.x.num_rows;
  const W4axOperands w4ax = {.x = operands.x,
                             .x_scales = operands.x_scales.x_scales,
                             .x_scales_pitch = round_up(M, kW4axTokenPadding),
                             .bias = operands.bias,
                             .starts_early = true};
  if (kernels_ == W4Kernels::kMma) {
    const MmaShape shape = mma_shape(weight_, M);
    const MixedDevice device = mixed_device(context);
    mma_w4ax_gemm_planned(
        context, weight_, {.operands = w4ax, .num_s8_inputs = operands.num_s8_inputs},
        is_batch_invariant_ ? invariant_mma_plan(shape, device) : plan_mma_gemm(shape, device), y);
  } else if (is_w4ax_narrow(context, weight_, M) && !is_batch_invariant_) {
    w4ax_gemm_narrow(context, weight_, w4ax, y);
  } else {
    const TilePlan plan =
        plan_of(context, w4ax_family(), {M, weight_.N, weight_.K}, is_batch_invariant_);
    w4ax_gemm_planned(context, weight_, w4ax, plan, y);
  }
  context.workspace.release(mark);
}

size_t W4axLinear::workspace_bytes(int64_t, Precision) const {
  const MixedDevice device = {.num_sms = num_sms_};
  return kernels_ == W4Kernels::kMma
             ? of_arena(static_cast<int64_t>(mma_workspace_bytes_max(device)))
             : product_bytes(num_sms_, w4ax_family());
}

NestedLinear::NestedLinear(const CudaContext& context, NestedWeight weight,
                           std::unique_ptr<RowsWeight> upper, bool is_batch_invariant)
    : weight_(std::move(weight)),
      upper_(std::move(upper)),
      low_activation_{.kind = ActivationQuant::kE4m3Token, .has_lane_order = true},
      num_sms_(context.device.num_sms),
      is_batch_invariant_(is_batch_invariant) {}

const char* NestedLinear::kernel_name() const { return kNestedKernelName; }

std::string NestedLinear::describe_kernels() const {
  return str("outputs by ", kernel_name(), ", in low precision ", upper_->describe_kernels());
}

WeightInput NestedLinear::input(Precision precision) const {
  if (precision == Precision::kFull) return {.dtype = DType::kF16, .takes_any = true};
  WeightInput input = upper_->input(precision);
  input.activation = &low_activation_;
  return input;
}

void NestedLinear::multiply(const CudaContext& context, const WeightOperands& operands,
                            Matrix y) const {
  if (operands.x.dtype == DType::kF8E4M3) return upper_->multiply(context, operands, y);
  const size_t mark = context.workspace.mark();
  ConstMatrix x = operands.x;
  if (x.dtype != DType::kF16 || !has_wide_rows(x)) {
    const int64_t stride = round_up<int64_t>(x.num_cols, 8);
    const Matrix rounded = {context.workspace.take(static_cast<size_t>(x.num_rows * stride) * 2),
                            DType::kF16, x.num_rows, x.num_cols, stride};
    round_rows(context, {}, x, rounded);
    x = rounded;
  }
  const TilePlan plan = plan_of(context, nested_family(), {x.num_rows, weight_.N(), weight_.K()},
                                is_batch_invariant_);
  // Weights were in place before the layer was; what is ahead on the stream of a step is a kernel.
  nested_gemm_planned(context, weight_, {.x = x, .bias = operands.bias, .starts_early = true}, plan,
                      y);
  context.workspace.release(mark);
}

size_t NestedLinear::workspace_bytes(int64_t M, Precision precision) const {
  if (precision == Precision::kLow) return upper_->workspace_bytes(M, precision);
  return of_arena(M * round_up<int64_t>(weight_.K(), 8) * 2) +
         product_bytes(num_sms_, nested_family());
}

std::vector<const DeviceBuffer*> NestedLinear::buffers(Precision precision) const {
  std::vector<const DeviceBuffer*> buffers = upper_->buffers(precision);
  if (precision == Precision::kFull) buffers.push_back(&weight_.lower);
  return buffers;
}

}  // namespace halley::cuda
