#include "halley/cuda/nested_gemm/time_nested_gemm.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/hopper_tile/tile_settings.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/nested_gemm/nested_layout.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {
namespace {

/// Bytes of normal numbers.
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

constexpr float kWeightDeviation = 0.02f;

/// Copies of one weight of normal numbers, with inputs and outputs.
class TimedWeight {
 public:
  /// M: the most rows.
  TimedWeight(const CudaContext& context, const ProductShape& largest)
      : context_(context),
        shape_(largest),
        stride_(round_up<int64_t>(largest.K, kNestedInputs)),
        x_(static_cast<size_t>(largest.M * stride_) * 2, "inputs to time"),
        y_(static_cast<size_t>(largest.M * largest.N) * 2, "outputs to time") {
    const Patterns weights(kWeightDeviation), inputs(1);
    const auto plane_bytes = static_cast<size_t>(largest.N * stride_);
    const size_t num_copies = num_timed_copies(context, 2 * plane_bytes);
    upper_ = DeviceBuffer(num_copies * plane_bytes, "upper planes");
    fill_pattern(upper_, weights.upper);
    fill_pattern(x_, inputs.f16);
    for (size_t i = 0; i < num_copies; ++i) {
      weights_.emplace_back(context, ConstMatrix{upper_.data() + i * plane_bytes, DType::kF8E4M3,
                                                 largest.N, largest.K, stride_});
      context.stream.synchronize();  // the lower plane is zero
      fill_pattern(weights_.back().lower, weights.lower);
    }
  }

  size_t num_copies() const { return weights_.size(); }
  std::function<void(size_t)> product(const TilePlan& plan, int64_t M) const {
    const NestedOperands operands = {.x = {x_.data(), DType::kF16, M, shape_.K, stride_},
                                     .starts_early = true};
    const Matrix outputs = {y_.data(), DType::kF16, M, shape_.N, shape_.N};
    return [this, plan, operands, outputs](size_t copy) {
      nested_gemm_planned(context_, weights_[copy], operands, plan, outputs);
    };
  }

 private:
  const CudaContext& context_;
  ProductShape shape_;
  int64_t stride_;
  DeviceBuffer x_, y_, upper_;
  std::vector<NestedWeight> weights_;
};

}  // namespace

std::vector<GemmTime> time_nested_gemm(const CudaContext& context, const TimeGemmOptions& options) {
  std::vector<GemmTime> times;
  const CudaDeviceInfo& device = context.device;
  for (const auto& [N, K] : timed_shapes(options)) {
    const TimedWeight weight(context, {.M = timed_rows_max(options), .N = N, .K = K});
    const double weight_bytes = 2 * static_cast<double>(N) * static_cast<double>(K);
    for (const int64_t M : options.rows) {
      const ProductShape shape = {.M = M, .N = N, .K = K};
      const std::string chosen = str(plan_tiles(nested_family(), shape, device));
      const double floor = floor_microseconds(
          options.rates, {.N = N,
                          .K = K,
                          .M = M,
                          .weight_bytes = weight_bytes,
                          .operations_per_second = options.rates.f16_per_second});
      for (const TilePlan& plan :
           timed_plans(nested_family(), shape, device, options.has_all_plans)) {
        times.push_back({.problem = "nested_f16",
                         .kernel = str(plan),
                         .is_chosen = str(plan) == chosen,
                         .N = N,
                         .K = K,
                         .M = M,
                         .weight_bytes = weight_bytes,
                         .time = time_starts(context, weight.num_copies(), weight.product(plan, M)),
                         .floor_microseconds = floor});
      }
    }
  }
  return times;
}

std::vector<TunedPlan> tune_nested_gemm(const CudaContext& context, const TunedGemm& gemm,
                                        const std::vector<int64_t>& rows,
                                        const OnTunedPlan& on_plan) {
  std::vector<TunedPlan> tuned;
  if (rows.empty()) return tuned;
  const TimedWeight weight(
      context, {.M = *std::max_element(rows.begin(), rows.end()), .N = gemm.N, .K = gemm.K});
  for (const int64_t M : rows) {
    std::vector<TunedCandidate> candidates;
    for (const TilePlan& plan : timed_plans(nested_family(), {.M = M, .N = gemm.N, .K = gemm.K},
                                            context.device, /*has_all_tiles=*/true)) {
      candidates.push_back({settings_of(plan), weight.product(plan, M)});
    }
    tuned.push_back(fastest_plan(context, weight.num_copies(), gemm, M, candidates));
    on_plan(tuned.back());
  }
  return tuned;
}

std::vector<GemmTime> time_nested_fp8(const CudaContext& context, CublasLtGemm& lt,
                                      const TimeGemmOptions& options) {
  const Patterns weights(kWeightDeviation);
  const auto time = [&](ScaleSpan scale) {
    return time_gemm(context, lt, {"nested_fp8", DType::kF8E4M3, scale}, weights.upper, options);
  };
  std::vector<GemmTime> times = time(ScaleSpan::kRow);
  for (GemmTime& other : time(ScaleSpan::kTensor)) {
    if (other.kernel != "gemm_fp8_tensor_cublaslt") continue;
    other.is_chosen = false;
    times.push_back(std::move(other));
  }
  return times;
}

}  // namespace halley::cuda
