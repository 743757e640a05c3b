// Instantiates an ablation kernel for all tiles of the W4Ax GEMM.
#pragma once

#include "halley/cuda/ablation/ablation_kernels.h"
#include "halley/cuda/w4ax_gemm/w4ax_kernel.cuh"

namespace halley::cuda {

template <template <int> class Consumer>
W4axLaunch launch_of_tile(int tokens) {
  switch (tokens) {
    case 16:
      return launch_w4ax_by<16, Consumer<16>>;
    case 32:
      return launch_w4ax_by<32, Consumer<32>>;
    case 64:
      return launch_w4ax_by<64, Consumer<64>>;
    case 128:
      return launch_w4ax_by<128, Consumer<128>>;
    default:
      return nullptr;
  }
}

}  // namespace halley::cuda
