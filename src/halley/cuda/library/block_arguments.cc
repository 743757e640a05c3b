#include "halley/cuda/library/block_arguments.h"

#include <bit>
#include <cmath>

#include "halley/base/str.h"
#include "halley/cuda/library/checked_arguments.h"

namespace halley::cuda {

std::vector<float> block_scales_of(const W4axWeight& weight, const float* scales) {
  constexpr uint32_t kLostBits = 3;  // lowest of the 24 significant bits of f32, so that 22 remain
  std::vector<float> placed(static_cast<size_t>(weight.num_blocks() * weight.scales_pitch()));
  for (int64_t n = 0; n < weight.N; ++n) {
    for (int64_t b = 0; b < weight.num_blocks(); ++b) {
      const float scale = scales[n * weight.num_blocks() + b];
      require(std::isfinite(scale) && (std::bit_cast<uint32_t>(scale) & kLostBits) == 0,
              str("scales: expected finite values of 22 significant bits, got ", scale,
                  " of output ", n, ", block ", b, ". Round them to f16 or bf16."));
      placed[static_cast<size_t>(b * weight.scales_pitch() + n)] = scale;
    }
  }
  return placed;
}

W4axOperands block_operands(const halley_kernels_block_input& input) {
  const Matrix x = matrix_of(input.x, "x");
  require(x.dtype == DType::kI8, str("x: expected s8, got ", x.dtype, "."));
  require_wide_rows(x, "x");
  require(input.scales_pitch >= x.num_rows && input.scales_pitch <= kSizeMax &&
              input.scales_pitch % kW4axTokenPadding == 0,
          str("scales_pitch: expected a multiple of ", kW4axTokenPadding, " from ", x.num_rows,
              " on, got ", input.scales_pitch, "."));
  require_pointer(input.scales, "scales");
  require(std::bit_cast<uintptr_t>(input.scales) % 16 == 0,
          "scales: expected memory at a multiple of 16 bytes.");
  require(input.num_s8_inputs >= 0 && input.num_s8_inputs <= x.num_cols,
          str("num_s8_inputs: expected 0 to ", x.num_cols, ", got ", input.num_s8_inputs, "."));
  return {
      .x = x, .x_scales = input.scales, .x_scales_pitch = input.scales_pitch, .bias = input.bias};
}

}  // namespace halley::cuda
