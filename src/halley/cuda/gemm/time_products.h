// What measurements of products share: shapes, rates, a timer of captured graphs, numbers to
// multiply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/tuning/tuning_table.h"

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
  std::vector<int64_t> rows = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  GpuRates rates = {};
  /// Kernels that have several plans are timed with all that may be the fastest, not with the one
  /// that a layer runs alone.
  bool has_all_plans = false;
};

/// The eight linear layers of Llama-3 8B and 70B, [N, K].
std::vector<std::pair<int64_t, int64_t>> llama_gemm_shapes();
/// Those of the options.
std::vector<std::pair<int64_t, int64_t>> timed_shapes(const TimeGemmOptions& options);
/// The most of them, at least one.
int64_t timed_rows_max(const TimeGemmOptions& options);

struct ProductTime {
  /// Each kernel waits for the end of the one ahead of it.
  double microseconds = 0;
  /// As models run them, kernels that may start before the one ahead has ended: none where none
  /// may.
  std::optional<double> early_microseconds = std::nullopt;
};

/// One row of the result of time_gemm() and its like.
struct GemmTime {
  std::string problem = {};
  std::string kernel = {};      // of a table, or a plan
  std::string rejections = {};  // why better-placed kernels do not run
  bool is_chosen = true;        // whether a layer runs it for M rows
  int64_t N = 0, K = 0, M = 0;
  double weight_bytes = 0;  // with scales of groups
  ProductTime time = {};
  /// The larger of both, of the bytes that must move (weight, x, y in f16) and of the operations.
  double floor_microseconds = 0;
};

struct ProductWork {
  int64_t N = 0, K = 0, M = 0;
  double weight_bytes = 0;
  int input_bytes = 2;  // of one number of x
  double operations_per_second = 0;
};
double floor_microseconds(const GpuRates& rates, const ProductWork& work);

/// Copies of a weight that fill the L2 cache three times, two at least: products that take one
/// after the other read all of each from memory.
size_t num_timed_copies(const CudaContext& context, size_t weight_bytes);

/// Microseconds of one product: a captured graph runs at least 20, copy after copy of the weights;
/// median of three graphs. `queue` queues one with the copy of that number. Kernels start early
/// where they may. Fewer graphs run where the first ones say that the time is well above `limit`.
double time_products(const CudaContext& context, size_t num_copies,
                     const std::function<void(size_t copy)>& queue,
                     double limit = std::numeric_limits<double>::infinity());

/// A plan among which tuning finds the fastest: its settings, and what queues a GEMM by it.
struct TunedCandidate {
  PlanSettings settings;
  std::function<void(size_t copy)> queue;
};

/// Is told each plan when it has been found.
using OnTunedPlan = std::function<void(const TunedPlan&)>;

/// The fastest one, as models run it; of those that are as fast the first. At least one candidate.
TunedPlan fastest_plan(const CudaContext& context, size_t num_copies, const TunedGemm& gemm,
                       int64_t M, const std::vector<TunedCandidate>& candidates);

/// The same with and without early starts.
ProductTime time_starts(const CudaContext& context, size_t num_copies,
                        const std::function<void(size_t copy)>& queue);

/// Random bytes: codes in any order.
std::vector<uint8_t> random_codes(size_t num_bytes);
/// Random f16 numbers with exponents of 2^-3 to 1, as bytes: the tensor cores draw the power that
/// they draw with real numbers. In bf16 they are small numbers too.
std::vector<uint8_t> random_f16(size_t num_bytes);

/// The pattern again and again. Waits: streams do not wait for copies beside them.
void fill_pattern(std::byte* device, size_t num_bytes, std::span<const uint8_t> pattern);
void fill_pattern(const DeviceBuffer& buffer, std::span<const uint8_t> pattern);
void fill_numbers(const DeviceBuffer& buffer, float value);

}  // namespace halley::cuda
