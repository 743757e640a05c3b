// Times of the W4Ax GEMM and of its ablation variants.
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
  /// Time relative to "full".
  double ratio = 0;
  /// Roofline: the larger of the times for the bytes that must move and for the operations.
  double floor_microseconds = 0;
};

/// Times all variants in their order for each shape and M. Variants that share no tiles use the
/// tile that is fastest without Stream-K; the others use that of w4ax_gemm(). Timed as
/// time_mixed_gemm() does: weights rotate so that none is in the L2 cache, a captured graph of at
/// least 20 GEMMs, median of three; every fifth block of activations has 8 bits. Requires compute
/// capability 9.0, and tile_workspace_bytes_max() of w4ax_family() in the context's workspace.
/// Takes device memory of about three L2 caches and two of the largest weight. Throws
/// UnsupportedError as w4ax_gemm() does.
std::vector<AblationTime> time_ablation(const CudaContext& context,
                                        const TimeAblationOptions& options = {});

}  // namespace halley::cuda
