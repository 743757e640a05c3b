#include "halley/cuda/nested_gemm/time_nested_gemm.h"

#include <algorithm>
#include <functional>
#include <random>
#include <thread>

#include <cuda_runtime_api.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/hopper_tile/tuned_tiles.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {
namespace {

/// Bytes of normal numbers, copied again and again to device memory.
struct Patterns {
  std::vector<uint8_t> f16, upper, lower;

  explicit Patterns(float deviation) {
    constexpr size_t kNumbers = (size_t{2} << 20) + 4096;
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, deviation);
    for (size_t i = 0; i < kNumbers; ++i) {
      const uint16_t bits = f32_to_f16(normal(random));
      const NestedFloat nested = split_f16(can_split_f16(bits) ? bits : uint16_t{0x3C00});
      f16.push_back(static_cast<uint8_t>(bits));
      f16.push_back(static_cast<uint8_t>(bits >> 8));
      upper.push_back(nested.upper);
      lower.push_back(nested.lower);
    }
  }
};

void fill(std::byte* to, size_t num_bytes, const std::vector<uint8_t>& pattern) {
  for (size_t begin = 0; begin < num_bytes; begin += pattern.size()) {
    check_cuda(cudaMemcpy(to + begin, pattern.data(), std::min(pattern.size(), num_bytes - begin),
                          cudaMemcpyHostToDevice),
               "copy of random numbers");
  }
  // Streams do not wait for copies beside them.
  check_cuda(cudaDeviceSynchronize(), "copy of random numbers");
}

struct TimedShape {
  const CudaContext& context;
  const TimeNestedOptions& options;
  const Patterns& patterns;
  int64_t N = 0, K = 0, stride = 0;
  size_t num_copies = 0;
  ConstMatrix x;  // the most rows
  std::byte* y = nullptr;
  std::vector<NestedGemmTime>* times;
};

/// Plans that are timed: estimates up to so many times the least.
constexpr double kSlowestEstimate = 1.5;

bool is_near(const HopperTile& tile, int64_t M) {
  return tile.tokens <= std::max<int64_t>(2 * M, 16) && M <= int64_t{tile.tokens} * 16;
}

std::vector<TilePlan> plans_of(const TimedShape& timed, const ProductShape& shape) {
  const CudaDeviceInfo& device = timed.context.device;
  if (!timed.options.has_all_tiles) return {plan_tiles(nested_family(), shape, device)};
  std::vector<TilePlan> plans;
  for (size_t i = 0; i < nested_family().tiles.size(); ++i) {
    const HopperTile& tile = nested_family().tiles[i].tile;
    if (!is_near(tile, shape.M)) continue;
    const int index = static_cast<int>(i);
    for (TilePlan& plan : plans_of_tile(nested_family(), shape, device, index)) {
      plans.push_back(std::move(plan));
    }
  }
  // Estimates are not that wrong.
  double least = plans.front().microseconds;
  for (const TilePlan& plan : plans) least = std::min(least, plan.microseconds);
  std::erase_if(plans,
                [&](const TilePlan& plan) { return plan.microseconds > kSlowestEstimate * least; });
  return plans;
}

/// Under load clocks fall for a while: everything that is timed begins behind the same pause.
double time_rested(const TimedShape& timed, const std::function<void(size_t copy)>& queue) {
  std::this_thread::sleep_for(timed.options.pause);
  return time_products(timed.context, timed.num_copies, queue);
}

/// Weights of both kinds, as many as num_copies.
struct TimedWeights {
  DeviceBuffer f16, upper;
  std::vector<NestedWeight> nested;

  explicit TimedWeights(const TimedShape& timed) {
    const auto plane_bytes = static_cast<size_t>(timed.N * timed.stride);
    if (timed.options.has_f16) {
      f16 = DeviceBuffer(timed.num_copies * plane_bytes * 2, "f16 weights");
      fill(f16.data(), f16.num_bytes(), timed.patterns.f16);
    }
    upper = DeviceBuffer(timed.num_copies * plane_bytes, "upper planes");
    fill(upper.data(), upper.num_bytes(), timed.patterns.upper);
    for (size_t i = 0; i < timed.num_copies; ++i) {
      nested.emplace_back(timed.context, ConstMatrix{upper.data() + i * plane_bytes, DType::kF8E4M3,
                                                     timed.N, timed.K, timed.stride});
      timed.context.stream.synchronize();
      fill(nested.back().lower.data(), nested.back().lower.num_bytes(), timed.patterns.lower);
    }
  }
};

void add_nested_times(const TimedShape& timed, const TimedWeights& weights, int64_t M) {
  const ProductShape shape = {.M = M, .N = timed.N, .K = timed.K};
  const std::string chosen = str(plan_tiles(nested_family(), shape, timed.context.device));
  for (const TilePlan& plan : plans_of(timed, shape)) {
    const double microseconds = time_rested(timed, [&](size_t copy) {
      nested_gemm_planned(timed.context, weights.nested[copy],
                          {.x = timed.x.rows(0, M), .starts_early = true}, plan,
                          {timed.y, DType::kF16, M, timed.N, timed.N});
    });
    const TunedTile tuned = {.family = "nested",
                             .N = timed.N,
                             .K = timed.K,
                             .rows = M,
                             .tokens = plan.tile.tokens,
                             .deal = plan.deal,
                             .microseconds = microseconds};
    timed.times->push_back({.plan = str(plan),
                            .is_chosen = str(plan) == chosen,
                            .N = timed.N,
                            .K = timed.K,
                            .M = M,
                            .microseconds = microseconds,
                            .tuned = to_json(tuned)});
  }
}

void add_f16_time(const TimedShape& timed, CublasLtGemm& lt, const TimedWeights& weights,
                  int64_t M) {
  const auto weight_bytes = static_cast<size_t>(timed.N * timed.stride) * 2;
  const double microseconds = time_rested(timed, [&](size_t copy) {
    lt.multiply(timed.context,
                {.x = timed.x.rows(0, M),
                 .w = {weights.f16.data() + copy * weight_bytes, DType::kF16, timed.N, timed.K,
                       timed.stride}},
                {timed.y, DType::kF16, M, timed.N, timed.N});
  });
  timed.times->push_back(
      {.plan = "f16", .N = timed.N, .K = timed.K, .M = M, .microseconds = microseconds});
}

}  // namespace

std::vector<NestedGemmTime> time_nested_gemm(const CudaContext& context, CublasLtGemm& lt,
                                             const TimeNestedOptions& options) {
  std::vector<NestedGemmTime> times;
  if (options.rows.empty()) return times;
  const int64_t rows_max = *std::max_element(options.rows.begin(), options.rows.end());
  const Patterns weights(0.02f), inputs(1.0f);
  const auto shapes = options.shapes.empty() ? llama_gemm_shapes() : options.shapes;
  for (const auto& [N, K] : shapes) {
    const int64_t stride = round_up<int64_t>(K, kGemmPadding);
    const DeviceBuffer x(static_cast<size_t>(rows_max * stride) * 2, "inputs to time");
    const DeviceBuffer y(static_cast<size_t>(rows_max * N) * 2, "outputs to time");
    fill(x.data(), x.num_bytes(), inputs.f16);
    const auto weight_bytes = static_cast<size_t>(N * stride) * 2;
    const TimedShape timed = {
        .context = context,
        .options = options,
        .patterns = weights,
        .N = N,
        .K = K,
        .stride = stride,
        .num_copies = std::max<size_t>(2, ceil_div(3 * context.device.l2_bytes, weight_bytes)),
        .x = {x.data(), DType::kF16, rows_max, K, stride},
        .y = y.data(),
        .times = &times};
    const TimedWeights timed_weights(timed);
    for (const int64_t M : options.rows) {
      if (options.has_f16) add_f16_time(timed, lt, timed_weights, M);
      add_nested_times(timed, timed_weights, M);
    }
  }
  return times;
}

}  // namespace halley::cuda
