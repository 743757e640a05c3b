// Times of the GPU's products beside the least that memory and tensor cores allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// What a GPU can do; the defaults were measured on an NVIDIA H200 (tensor cores from registers,
/// dense; reads of large arrays).
struct GpuRates {
  double bytes_per_second = 4.66e12;
  double f16_per_second = 968e12;  // operations: two for each product
  double e4m3_per_second = 1733e12;
  double s8_per_second = 1805e12;
};

struct TimeGemmOptions {
  /// [N, K] of weights. Empty: the linear layers of Llama-3 8B and 70B.
  std::vector<std::pair<int64_t, int64_t>> shapes = {};
  std::vector<int64_t> rows = {1, 8, 16, 32, 64, 128, 256, 2048};
  GpuRates rates = {};
};

/// The eight linear layers of Llama-3 8B and 70B, [N, K].
std::vector<std::pair<int64_t, int64_t>> llama_gemm_shapes();

/// One row of the result.
struct GemmTime {
  std::string problem;    // "f16", "fp8_tensor", "fp8_row" or "s8"
  std::string kernel;     // of the table
  std::string refusals;   // why better-placed ones do not run
  bool is_chosen = true;  // whether a layer runs it for M rows
  int64_t N = 0, K = 0, M = 0;
  double microseconds = 0;
  /// The larger of both, of the bytes that must move (weight, x, y) and of the operations.
  double floor_microseconds = 0;
};

/// Microseconds of one product: a captured graph runs at least 20, copy after copy of the weights;
/// best of three graphs. `queue` queues one with the copy of that number.
double time_products(const CudaContext& context, size_t num_copies,
                     const std::function<void(size_t copy)>& queue);

double gemm_floor_microseconds(const GpuRates& rates, const CudaGemmProblem& problem, int64_t M);

/// Products with f16 outputs, by all kernels that a layer may run for few rows; codes of
/// activations are there already, so that rounding them is not in the times. Weights are rotated so
/// that none is in the L2 cache; one captured graph runs at least 20 products; best of three
/// graphs. Takes device memory of about three L2 caches and two of the largest weight beside the
/// workspace. Throws as CublasLtGemm::multiply().
std::vector<GemmTime> time_gemm(const CudaContext& context, CublasLtGemm& lt,
                                const TimeGemmOptions& options = {});

}  // namespace halley::cuda
