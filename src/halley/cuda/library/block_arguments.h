// Checks of a caller's arrays in blocks of 128 inputs: weights and activations of W4Ax.
#pragma once

#include <vector>

#include "halley/cuda/library/halley_kernels.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {

/// A caller's scales [N, blocks] as the weight has them: [blocks, pitch], zero past N. Throws
/// InputError where one is not finite or has more than 22 significant bits.
std::vector<float> block_scales_of(const W4axWeight& weight, const float* scales);

/// x and its scales. Throws InputError where they are wrong.
W4axOperands block_operands(const halley_kernels_block_input& input);

}  // namespace halley::cuda
