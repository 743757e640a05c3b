// Times of the W4Ax product and of its variants.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct TimeAblationOptions {
  /// [N, K] of weights. Empty: the linear layers of Llama-3 8B and 70B.
  std::vector<std::pair<int64_t, int64_t>> shapes = {};
  std::vector<int64_t> rows = {16, 64, 256, 2048};
  GpuRates rates = {};
};

struct AblationTime {
  std::string variant = {};  // of ablation_variants()
  std::string plan = {};
  int64_t N = 0, K = 0, M = 0;
  double microseconds = 0;
  /// Over that of "full".
  double ratio = 0;
  /// The larger of both, of the bytes that must move and of the operations.
  double floor_microseconds = 0;
};

/// For each shape and number of rows all variants in their order. Variants that share no tiles have
/// the tile that is fastest without; the others that of w4ax_gemm(). As time_mixed_gemm(): weights
/// rotated so that none is in the L2 cache, a captured graph of at least 20 products, best of
/// three; every fifth block of activations has 8 bits. Requires: compute capability 9.0;
/// tile_workspace_bytes_max() of w4ax_family() of the context's workspace. Takes device memory of
/// about three L2 caches and two of the largest weight. Throws UnsupportedError as w4ax_gemm().
std::vector<AblationTime> time_ablation(const CudaContext& context,
                                        const TimeAblationOptions& options = {});

}  // namespace halley::cuda
