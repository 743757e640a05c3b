#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"

#include <algorithm>
#include <random>

#include <cuda_runtime_api.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {
namespace {

size_t num_copies_of(const CudaContext& context, size_t weight_bytes) {
  return std::max<size_t>(2, ceil_div(3 * context.device.l2_bytes, weight_bytes));
}

double weight_bytes_of(const MixedShape& shape) {
  return static_cast<double>(shape.N) * static_cast<double>(shape.K) *
         chunk_bytes(shape.kind, shape.group_size) / (kChunkOutputs * kChunkInputs);
}

/// Random codes, and parameters of groups that give numbers of moderate size.
MixedPacked random_packed(const MixedShape& shape) {
  const int bytes = chunk_bytes(shape.kind, shape.group_size);
  const int64_t chunks =
      ceil_div<int64_t>(shape.N, kChunkOutputs) * ceil_div<int64_t>(shape.K, kChunkInputs);
  std::mt19937 random(7);
  std::vector<uint8_t> codes(kChunkCodeBytes + 4093);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
  std::vector<uint8_t> chunk(static_cast<size_t>(bytes));
  MixedPacked packed = {
      .kind = shape.kind, .N = shape.N, .K = shape.K, .group_size = shape.group_size};
  for (size_t i = kChunkCodeBytes; i < chunk.size(); i += 4) {
    const bool is_upper = i % 8 == 4;
    const uint16_t scale =
        shape.kind == MixedKind::kU4F16 ? f32_to_f16(0.125f) : f32_to_bf16(0.125f);
    const uint16_t zero = shape.kind == MixedKind::kU4Bf16 ? f32_to_bf16(136)
                          : is_upper                       ? f32_to_f16(-72)
                                                           : f32_to_f16(1032);
    const uint32_t both = uint32_t{scale} | uint32_t{zero} << 16;
    const uint32_t word = shape.kind == MixedKind::kU4GroupS8 ? 0x48074807u : both;  // 7, 128 - 56
    for (size_t b = 0; b < 4; ++b) chunk[i + b] = static_cast<uint8_t>(word >> (8 * b));
  }
  packed.chunks.reserve(static_cast<size_t>(chunks) * chunk.size());
  for (int64_t i = 0; i < chunks; ++i) {
    const auto begin = codes.begin() + i * 61 % 4093;  // chunks differ
    std::copy(begin, begin + kChunkCodeBytes, chunk.begin());
    packed.chunks.insert(packed.chunks.end(), chunk.begin(), chunk.end());
  }
  if (is_s8(shape.kind)) packed.w_scales.assign(static_cast<size_t>(shape.N), 0x1p-10f);
  return packed;
}

/// Device memory with random bytes; as f16 numbers of 2^-3 to 1.
DeviceBuffer random_bytes(size_t num_bytes, bool is_f16) {
  constexpr size_t kPatternBytes = size_t{8} << 20;
  std::vector<uint8_t> pattern(std::min(num_bytes, kPatternBytes));
  std::mt19937 random(8);
  for (size_t i = 0; i < pattern.size(); ++i) {
    const auto bits = static_cast<uint8_t>(random());
    pattern[i] = is_f16 && i % 2 == 1 ? static_cast<uint8_t>(0x30 | (bits & 0x8B)) : bits;
  }
  DeviceBuffer buffer(num_bytes, "numbers to time");
  for (size_t begin = 0; begin < num_bytes; begin += pattern.size()) {
    check_cuda(cudaMemcpy(buffer.data() + begin, pattern.data(),
                          std::min(pattern.size(), num_bytes - begin), cudaMemcpyHostToDevice),
               "copy of random numbers");
  }
  // Streams do not wait for copies beside them.
  check_cuda(cudaDeviceSynchronize(), "copy of random numbers");
  return buffer;
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
  if (can_be_narrow(shape)) plans.push_back(narrow_mixed_plan(shape, device));
  for (const MixedPlan& plan : tiled) {
    if (plan.microseconds <= kFactor * best + kMicroseconds) plans.push_back(plan);
  }
  return plans;
}

/// The chosen one, or all.
std::vector<MixedPlan> plans_of(const TimeMixedOptions& options, const MixedShape& shape,
                                const MixedDevice& device) {
  if (!options.has_all_tiles) return {plan_mixed_gemm(shape, device)};
  std::vector<MixedPlan> plans;
  if (can_be_narrow(shape)) plans.push_back(narrow_mixed_plan(shape, device));
  for (const MixedTiling& tiling : mixed_tilings(shape, device)) {
    plans.push_back(tiled_mixed_plan(shape, device, tiling));
  }
  return plans;
}

struct TimedKind {
  const CudaContext& context;
  const TimeMixedOptions& options;
  MixedShape shape;  // M: the most rows
  std::vector<MixedGemmTime>* times;
};

DType x_dtype_of(MixedKind kind) {
  if (is_s8(kind)) return DType::kI8;
  return kind == MixedKind::kU4F16 ? DType::kF16 : DType::kBf16;
}

/// Copies of one random weight, with inputs and outputs.
class TimedWeight {
 public:
  /// M: the most rows.
  TimedWeight(const CudaContext& context, const MixedShape& largest)
      : context_(context),
        shape_(largest),
        x_stride_(round_up<int64_t>(largest.K, 16)),  // rows at multiples of 16 bytes
        x_(random_bytes(static_cast<size_t>(largest.M * x_stride_ * (is_s8(largest.kind) ? 1 : 2)),
                        !is_s8(largest.kind))),
        y_(static_cast<size_t>(largest.M * largest.N) * 2, "outputs to time"),
        scales_(random_bytes(static_cast<size_t>(largest.M) * sizeof(float), true)) {
    const MixedPacked packed = random_packed(largest);
    const size_t num_copies = num_copies_of(context, packed.chunks.size());
    for (size_t i = 0; i < num_copies; ++i) weights_.emplace_back(packed);
  }

  MixedShape shape(int64_t M) const {
    MixedShape shape = shape_;
    shape.M = M;
    return shape;
  }

  /// Microseconds.
  double time(const MixedPlan& plan, int64_t M, bool starts_early) const {
    const MixedOperands operands = {
        .x = {x_.data(), x_dtype_of(shape_.kind), M, shape_.K, x_stride_},
        .x_scales = {.x_scales = reinterpret_cast<const float*>(scales_.data())},
        .starts_early = starts_early};
    const Matrix outputs = {y_.data(), DType::kF16, M, shape_.N, shape_.N};
    return time_products(context_, weights_.size(), [&](size_t copy) {
      mixed_gemm_planned(context_, weights_[copy], operands, plan, outputs);
    });
  }

 private:
  const CudaContext& context_;
  MixedShape shape_;
  int64_t x_stride_;
  DeviceBuffer x_, y_, scales_;
  std::vector<MixedWeight> weights_;
};

void add_kind_times(const TimedKind& timed) {
  const TimedWeight weight(timed.context, timed.shape);
  const MixedDevice device = mixed_device(timed.context);
  for (const int64_t M : timed.options.rows) {
    const MixedShape shape = weight.shape(M);
    for (const MixedPlan& plan : plans_of(timed.options, shape, device)) {
      const bool is_chosen = str(plan) == str(plan_mixed_gemm(shape, device));
      for (const bool starts_early : {false, true}) {
        if (starts_early && !timed.options.has_early_starts) continue;
        timed.times->push_back(
            {.problem = name_of(shape.kind),
             .plan = str(plan),
             .is_chosen = is_chosen,
             .starts_early = starts_early,
             .N = shape.N,
             .K = shape.K,
             .M = M,
             .microseconds = weight.time(plan, M, starts_early),
             .floor_microseconds = mixed_floor_microseconds(timed.options.rates, shape),
             .weight_bytes = weight_bytes_of(shape)});
      }
    }
  }
}

void add_f16_times(const TimedKind& timed, CublasLtGemm& lt) {
  const MixedShape& largest = timed.shape;
  const int64_t stride = round_up(largest.K, kGemmPadding);
  const auto weight_bytes = static_cast<size_t>(largest.N * stride) * 2;
  const size_t num_copies = num_copies_of(timed.context, weight_bytes);
  const DeviceBuffer w = random_bytes(num_copies * weight_bytes, true);
  const DeviceBuffer x = random_bytes(static_cast<size_t>(largest.M * stride) * 2, true);
  const DeviceBuffer y(static_cast<size_t>(largest.M * largest.N) * 2, "outputs to time");
  for (const int64_t M : timed.options.rows) {
    const double microseconds = time_products(timed.context, num_copies, [&](size_t copy) {
      lt.multiply(
          timed.context,
          {.x = {x.data(), DType::kF16, M, largest.K, stride},
           .w = {w.data() + copy * weight_bytes, DType::kF16, largest.N, largest.K, stride}},
          {y.data(), DType::kF16, M, largest.N, largest.N});
    });
    timed.times->push_back({.problem = "f16",
                            .N = largest.N,
                            .K = largest.K,
                            .M = M,
                            .microseconds = microseconds,
                            .floor_microseconds = gemm_floor_microseconds(
                                timed.options.rates, {.N = largest.N, .K = largest.K}, M),
                            .weight_bytes = static_cast<double>(largest.N * largest.K) * 2});
  }
}

}  // namespace

double mixed_floor_microseconds(const GpuRates& rates, const MixedShape& shape) {
  const auto rows = static_cast<double>(shape.M), outputs = static_cast<double>(shape.N);
  const auto inputs = static_cast<double>(shape.K);
  const double num_bytes =
      weight_bytes_of(shape) + rows * inputs * (is_s8(shape.kind) ? 1 : 2) + rows * outputs * 2;
  const double per_second = is_s8(shape.kind) ? rates.s8_per_second : rates.f16_per_second;
  return 1e6 *
         std::max(num_bytes / rates.bytes_per_second, 2 * rows * outputs * inputs / per_second);
}

std::vector<MixedGemmTime> time_mixed_gemm(const CudaContext& context, CublasLtGemm& lt,
                                           const TimeMixedOptions& options) {
  std::vector<MixedGemmTime> times;
  if (options.rows.empty()) return times;
  const int64_t rows_max = *std::max_element(options.rows.begin(), options.rows.end());
  const auto shapes = options.shapes.empty() ? llama_gemm_shapes() : options.shapes;
  for (const auto& [N, K] : shapes) {
    MixedShape shape = {.M = rows_max, .N = N, .K = K};
    if (options.has_f16) add_f16_times({context, options, shape, &times}, lt);
    for (const MixedKind kind : options.kinds) {
      shape.kind = kind;
      shape.group_size = kind == MixedKind::kU4S8 ? kChunkInputs : options.group_size;
      add_kind_times({context, options, shape, &times});
    }
  }
  return times;
}

std::vector<TunedMixedPlan> tune_mixed_gemm(
    const CudaContext& context, const MixedShape& layer, const std::vector<int64_t>& rows,
    const std::function<void(const TunedMixedPlan&)>& on_plan) {
  std::vector<TunedMixedPlan> tuned;
  if (rows.empty()) return tuned;
  MixedShape largest = layer;
  largest.M = *std::max_element(rows.begin(), rows.end());
  const TimedWeight weight(context, largest);
  const MixedDevice device = mixed_device(context);
  for (const int64_t M : rows) {
    const MixedShape shape = weight.shape(M);
    TunedMixedPlan best = {
        .kind = shape.kind, .N = shape.N, .K = shape.K, .group_size = shape.group_size, .rows = M};
    for (const MixedPlan& plan : candidates_of(shape, device)) {
      // As models run them.
      const double microseconds = weight.time(plan, M, /*starts_early=*/true);
      if (best.microseconds > 0 && microseconds >= best.microseconds) continue;
      best.microseconds = microseconds;
      best.is_narrow = plan.is_narrow;
      best.tiling = plan.is_narrow ? MixedTiling{} : plan.tiling;
    }
    if (on_plan) on_plan(best);
    tuned.push_back(best);
  }
  return tuned;
}

}  // namespace halley::cuda
