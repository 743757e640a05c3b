#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"

#include <algorithm>
#include <limits>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {
namespace {

int input_bytes(MixedKind kind) { return is_s8(kind) ? 1 : 2; }

double weight_bytes_of(const MixedShape& shape) {
  return static_cast<double>(shape.N) * static_cast<double>(shape.K) *
         chunk_bytes(shape.kind, shape.group_size) / (kChunkOutputs * kChunkInputs);
}

/// Chunks with random codes, and parameters of groups that give numbers of moderate size.
std::vector<uint8_t> random_chunks(const MixedShape& shape) {
  constexpr size_t kNumChunks = 509;  // a prime: rows of chunks differ
  const auto bytes = static_cast<size_t>(chunk_bytes(shape.kind, shape.group_size));
  std::vector<uint8_t> chunks = random_codes(kNumChunks * bytes);
  for (size_t begin = 0; begin < chunks.size(); begin += bytes) {
    for (auto i = static_cast<size_t>(chunk_code_bytes(shape.kind)); i < bytes; i += 4) {
      const bool is_upper = i % 8 == 4;
      const uint16_t scale = is_f16(shape.kind) ? f32_to_f16(0.125f) : f32_to_bf16(0.125f);
      const uint16_t zero = zero_bits(shape.kind, is_upper, zero_max(shape.kind) / 2);
      const uint32_t both = uint32_t{scale} | uint32_t{zero} << 16;
      // 7 and 128 - 56.
      const uint32_t word = shape.kind == MixedKind::kU4GroupS8 ? 0x48074807u : both;
      for (size_t b = 0; b < 4; ++b) chunks[begin + i + b] = static_cast<uint8_t>(word >> (8 * b));
    }
  }
  return chunks;
}

/// All but tilings whose estimates are far from the best one's.
std::vector<MixedPlan> candidates_of(const MixedShape& shape, const MixedDevice& device) {
  constexpr double kFactor = 2, kMicroseconds = 3;  // estimates are wrong by less
  std::vector<MixedPlan> tiled, plans;
  double best = 0;
  for (const MixedTiling& tiling : mixed_tilings(shape, device)) {
    tiled.push_back(tiled_mixed_plan(shape, device, tiling));
    const double estimate = tiled.back().microseconds;
    best = tiled.size() == 1 ? estimate : std::min(best, estimate);
  }
  // The most promising first: others need fewer launches then.
  std::stable_sort(tiled.begin(), tiled.end(), [](const MixedPlan& a, const MixedPlan& b) {
    return a.microseconds < b.microseconds;
  });
  if (can_be_narrow(shape)) plans.push_back(narrow_mixed_plan(shape, device));
  for (const MixedPlan& plan : tiled) {
    if (plan.microseconds <= kFactor * best + kMicroseconds) plans.push_back(plan);
  }
  return plans;
}

/// The chosen one, or all.
std::vector<MixedPlan> plans_of(const TimeMixedOptions& options, const MixedShape& shape,
                                const MixedDevice& device) {
  if (!options.gemm.has_all_plans) return {plan_mixed_gemm(shape, device)};
  std::vector<MixedPlan> plans;
  if (can_be_narrow(shape)) plans.push_back(narrow_mixed_plan(shape, device));
  for (const MixedTiling& tiling : mixed_tilings(shape, device)) {
    plans.push_back(tiled_mixed_plan(shape, device, tiling));
  }
  return plans;
}

DType x_dtype_of(MixedKind kind) {
  if (is_s8(kind)) return DType::kI8;
  return is_f16(kind) ? DType::kF16 : DType::kBf16;
}

/// Copies of one random weight, with inputs and outputs.
class TimedWeight {
 public:
  /// M: the most rows.
  TimedWeight(const CudaContext& context, const MixedShape& largest)
      : context_(context),
        shape_(largest),
        x_stride_(round_up<int64_t>(largest.K, 16)),  // rows at multiples of 16 bytes
        x_(static_cast<size_t>(largest.M * x_stride_ * input_bytes(largest.kind)),
           "inputs to time"),
        y_(static_cast<size_t>(largest.M * largest.N) * 2, "outputs to time"),
        scales_(static_cast<size_t>(largest.M) * sizeof(float), "scales to time"),
        sums_(static_cast<size_t>(largest.M) * sizeof(int32_t), "sums to time") {
    fill_pattern(x_,
                 is_s8(largest.kind) ? random_codes(x_.num_bytes()) : random_f16(x_.num_bytes()));
    fill_numbers(scales_, 0x1p-6f);
    fill_pattern(sums_, random_codes(sums_.num_bytes()));
    const std::vector<uint8_t> chunks = random_chunks(largest);
    const auto weight_bytes = static_cast<size_t>(weight_bytes_of(largest));
    for (size_t i = num_timed_copies(context, weight_bytes); i > 0; --i) {
      weights_.emplace_back(largest, /*with_offsets=*/false);
      fill_pattern(weights_.back().chunks, chunks);
      if (is_s8(largest.kind)) fill_numbers(weights_.back().scales, 0x1p-10f);
    }
  }

  MixedShape shape(int64_t M) const {
    MixedShape shape = shape_;
    shape.M = M;
    return shape;
  }

  ProductTime time(const MixedPlan& plan, int64_t M) const {
    return time_starts(context_, weights_.size(), product(plan, M));
  }
  size_t num_copies() const { return weights_.size(); }
  std::function<void(size_t)> product(const MixedPlan& plan, int64_t M) const {
    const MixedOperands operands = {
        .x = {x_.data(), x_dtype_of(shape_.kind), M, shape_.K, x_stride_},
        .x_scales = {.x_scales = reinterpret_cast<const float*>(scales_.data()),
                     .x_sums = reinterpret_cast<const int32_t*>(sums_.data())},
        .starts_early = true};
    const Matrix outputs = {y_.data(), DType::kF16, M, shape_.N, shape_.N};
    return [this, plan, operands, outputs](size_t copy) {
      mixed_gemm_planned(context_, weights_[copy], operands, plan, outputs);
    };
  }

 private:
  const CudaContext& context_;
  MixedShape shape_;
  int64_t x_stride_;
  DeviceBuffer x_, y_, scales_, sums_;
  std::vector<MixedWeight> weights_;
};

/// M of the shape: the most rows.
void add_kind_times(const CudaContext& context, const TimeMixedOptions& options,
                    const MixedShape& largest, std::vector<GemmTime>* times) {
  const TimedWeight weight(context, largest);
  const MixedDevice device = mixed_device(context);
  for (const int64_t M : options.gemm.rows) {
    const MixedShape shape = weight.shape(M);
    const std::string chosen = str(plan_mixed_gemm(shape, device));
    for (const MixedPlan& plan : plans_of(options, shape, device)) {
      times->push_back({.problem = name_of(shape.kind),
                        .kernel = str(plan),
                        .is_chosen = str(plan) == chosen,
                        .N = shape.N,
                        .K = shape.K,
                        .M = M,
                        .weight_bytes = weight_bytes_of(shape),
                        .time = weight.time(plan, M),
                        .floor_microseconds = mixed_floor_microseconds(options.gemm.rates, shape)});
    }
  }
}

}  // namespace

double mixed_floor_microseconds(const GpuRates& rates, const MixedShape& shape) {
  return floor_microseconds(
      rates,
      {.N = shape.N,
       .K = shape.K,
       .M = shape.M,
       .weight_bytes = weight_bytes_of(shape),
       .input_bytes = input_bytes(shape.kind),
       .operations_per_second = is_s8(shape.kind) ? rates.s8_per_second : rates.f16_per_second});
}

std::vector<GemmTime> time_mixed_gemm(const CudaContext& context, const TimeMixedOptions& options) {
  std::vector<GemmTime> times;
  for (const auto& [N, K] : timed_shapes(options.gemm)) {
    for (const MixedKind kind : options.kinds) {
      add_kind_times(context, options,
                     {.kind = kind,
                      .M = timed_rows_max(options.gemm),
                      .N = N,
                      .K = K,
                      .group_size = kind == MixedKind::kU4S8 ? kChunkInputs : options.group_size},
                     &times);
    }
  }
  return times;
}

std::vector<TunedPlan> tune_mixed_gemm(const CudaContext& context, const TunedGemm& gemm,
                                       const std::vector<int64_t>& rows,
                                       const OnTunedPlan& on_plan) {
  std::vector<TunedPlan> tuned;
  if (rows.empty()) return tuned;
  const auto largest = mixed_shape_of(gemm, *std::max_element(rows.begin(), rows.end()));
  HALLEY_CHECK(largest, gemm.kernel, gemm.group_size);
  const TimedWeight weight(context, *largest);
  const MixedDevice device = mixed_device(context);
  for (const int64_t M : rows) {
    std::vector<TunedCandidate> candidates;
    for (const MixedPlan& plan : candidates_of(weight.shape(M), device)) {
      candidates.push_back({settings_of(plan), weight.product(plan, M)});
    }
    tuned.push_back(fastest_plan(context, weight.num_copies(), gemm, M, candidates));
    on_plan(tuned.back());
  }
  return tuned;
}

}  // namespace halley::cuda
