// Times of nested products beside cuBLASLt's in f16.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct TimeNestedOptions {
  /// [N, K] of weights. Empty: the linear layers of Llama-3 8B and 70B.
  std::vector<std::pair<int64_t, int64_t>> shapes = {};
  std::vector<int64_t> rows = {1, 16, 32, 64, 128, 256, 512, 1024, 2048};
  /// Times all tiles, each with its best schedule, whose tokens are not far from the rows.
  bool has_all_tiles = false;
  /// cuBLASLt's product in f16 too.
  bool has_f16 = true;
  /// Before all that is timed.
  std::chrono::milliseconds pause{10};
};

struct NestedGemmTime {
  std::string plan = {};  // "f16" of cuBLASLt
  bool is_chosen = true;
  int64_t N = 0, K = 0, M = 0;
  double microseconds = 0;
  std::string tuned = {};  // of a nested product: the plan's line of a table (tuned_tiles.h)
};

/// As time_gemm(): f16 outputs, normal weights and inputs, weights rotated so that none is in the
/// L2 cache, a captured graph of at least 20 products, best of three. Nested products start early,
/// as those of models. Takes device memory of about
/// three L2 caches and two of the largest weight, twice, and the largest plan's workspace.
std::vector<NestedGemmTime> time_nested_gemm(const CudaContext& context, CublasLtGemm& lt,
                                             const TimeNestedOptions& options = {});

}  // namespace halley::cuda
