#include "halley/cuda/weights/linear_input.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/fused/quantized_activation.h"
#include "halley/cuda/fused/quantized_norm.h"
#include "halley/cuda/weights/tile_linear.h"

namespace halley::cuda {
namespace {

/// What operations that leave codes have room for.
bool takes_codes(const CudaLinear& linear) {
  constexpr int64_t kColumnsMax = std::min(kNormColumnsMax, kQuantizedActivationColumnsMax);
  return linear.code_form() != nullptr && linear.in_features() <= kColumnsMax;
}

/// Rows that begin at multiples of 16 bytes.
int64_t number_stride(const CudaLinear& linear) {
  return round_up<int64_t>(linear.in_features(), 128 / bits_of(linear.dtype()));
}

size_t number_bytes(const CudaLinear& linear, int64_t M) {
  return static_cast<size_t>(M * number_stride(linear) * bits_of(linear.dtype()) / 8);
}

LinearInput take_codes(const CudaContext& context, const CudaLinear& linear, int64_t M) {
  const CudaActivationQuant& form = *linear.code_form();
  return {.is_codes = true,
          .numbers = {},
          .codes = {.dtype = linear.dtype(),
                    .quant = form,
                    .rows = form.kind == ActivationQuant::kS4S8Block128
                                ? take_w4ax_rows(context, M, linear.in_features())
                                : take_quantized_rows(context, form.kind, M, linear.in_features(),
                                                      linear.has_code_sums())}};
}

}  // namespace

LinearInput take_linear_input(const CudaContext& context, const CudaLinear& linear, int64_t M) {
  if (takes_codes(linear)) return take_codes(context, linear, M);
  auto* memory = context.workspace.take(number_bytes(linear, M));
  return {.numbers = {memory, linear.dtype(), M, linear.in_features(), number_stride(linear)}};
}

LinearInput take_linear_input(const CudaContext& context, const CudaLinear& linear,
                              Matrix numbers) {
  HALLEY_CHECK(numbers.num_cols == linear.in_features() && numbers.dtype == linear.dtype(),
               numbers.num_cols, linear.in_features(), name_of(numbers.dtype));
  if (takes_codes(linear)) return take_codes(context, linear, numbers.num_rows);
  return {.numbers = numbers};
}

size_t linear_input_bytes(const CudaLinear& linear, int64_t M) {
  return std::max({quantized_rows_bytes(M, linear.in_features()),
                   w4ax_rows_bytes(M, linear.in_features()),
                   round_up(number_bytes(linear, M), DeviceArena::kAlignment)});
}

void norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix x,
               const LinearInput& y) {
  if (y.is_codes) return norm_rows(context, params, x, y.codes);
  norm_rows(context, params, x, y.numbers);
}

void add_norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix block,
                   Matrix hidden, const LinearInput& y) {
  if (y.is_codes) return add_norm_rows(context, params, block, hidden, y.codes);
  add_norm_rows(context, params, block, hidden, y.numbers);
}

void gated_activation(const CudaContext& context, Activation activation, ConstMatrix gate_up,
                      const LinearInput& y) {
  if (y.is_codes) return gated_activation(context, activation, gate_up, y.codes);
  gated_activation(context, activation, gate_up, y.numbers);
}

void run_linear(const CudaContext& context, const CudaLinear& linear, const LinearInput& x,
                Matrix y, Precision precision) {
  if (x.is_codes) return linear.run_quantized(context, x.codes.rows, y);
  linear.run(context, x.numbers, y, precision);
}

}  // namespace halley::cuda
