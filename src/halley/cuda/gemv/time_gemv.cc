#include "halley/cuda/gemv/time_gemv.h"

#include <algorithm>
#include <array>
#include <string>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemv/gemv.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {
namespace {

constexpr std::array<TimedGemvProblem, 6> kProblems = {{
    {"u8_f16", 8, DType::kF16},
    {"u3_f16", 3, DType::kF16},
    {"u2_f16", 2, DType::kF16},
    {"u1_f16", 1, DType::kF16},
    {"u2_s8", 2, DType::kI8},
    {"u1_s8", 1, DType::kI8},
}};

GemvShape shape_of(const TimedGemvProblem& problem, int64_t N, int64_t K) {
  const bool is_s8 = problem.x_dtype == DType::kI8;
  const GemvShape shape = {.inputs = is_s8 ? GemvInputs::kS8 : GemvInputs::kNumbers,
                           .bits = problem.bits,
                           .N = N,
                           .K = K,
                           .group_size = is_s8 ? K : int64_t{128}};
  const std::string why_not = why_not_gemv(shape);
  if (!why_not.empty()) {
    throw UnsupportedError(str(problem.name, ": expected a weight that products of a few rows ",
                               "take, got ", N, " x ", K, ": ", why_not,
                               ". Time other problems or shapes."));
  }
  return shape;
}

/// Copies of a weight of random codes, with inputs and outputs.
class TimedWeight {
 public:
  TimedWeight(const CudaContext& context, const TimedGemvProblem& problem, const GemvShape& shape)
      : context_(context),
        shape_(shape),
        x_dtype_(problem.x_dtype),
        x_stride_(round_up<int64_t>(shape.K, 16)),  // rows at multiples of 16 bytes
        x_(static_cast<size_t>(kTimedGemvRowsMax * x_stride_) * 2, "inputs to time"),
        y_(static_cast<size_t>(kTimedGemvRowsMax * shape.N) * 2, "outputs to time"),
        x_scales_(static_cast<size_t>(kTimedGemvRowsMax) * sizeof(float), "scales to time") {
    const bool is_s8 = x_dtype_ == DType::kI8;
    fill_pattern(x_, is_s8 ? random_codes(x_.num_bytes()) : random_f16(x_.num_bytes()));
    fill_numbers(x_scales_, 0x1p-6f);
    const auto count = static_cast<size_t>(shape.N * shape.num_groups());
    const std::vector<float> scales(count, 0x1p-6f);
    const std::vector<float> zeros(count, static_cast<float>(1 << shape.bits) / 2);
    const std::vector<uint8_t> codes = random_codes(shape.code_bytes());
    for (size_t i = num_timed_copies(context, shape.code_bytes()); i > 0; --i) {
      weights_.emplace_back(context, shape, GemvParams{.scales = scales, .zeros = zeros});
      fill_pattern(weights_.back().codes, codes);
    }
  }

  double weight_bytes() const { return static_cast<double>(weights_[0].num_bytes()); }

  ProductTime time(int64_t M) const {
    const bool is_s8 = x_dtype_ == DType::kI8;
    const GemvOperands operands = {
        .x = {x_.data(), x_dtype_, M, shape_.K, x_stride_},
        .x_scales = is_s8 ? reinterpret_cast<const float*>(x_scales_.data()) : nullptr};
    const Matrix outputs = {y_.data(), DType::kF16, M, shape_.N, shape_.N};
    return time_starts(context_, weights_.size(),
                       [&](size_t copy) { gemv(context_, weights_[copy], operands, outputs); });
  }

 private:
  const CudaContext& context_;
  GemvShape shape_;
  DType x_dtype_;
  int64_t x_stride_;
  DeviceBuffer x_, y_, x_scales_;
  std::vector<GemvWeight> weights_;
};

/// As gemv() chooses.
std::string describe_kernel(const CudaDeviceInfo& device, const GemvShape& shape, int64_t M) {
  const GemvDevice limits = {.num_sms = device.num_sms,
                             .shared_bytes_max = static_cast<int>(device.shared_bytes_max)};
  const GemvPlanePlan planes = plan_gemv_planes(shape, M, limits);
  if (planes.blocks > 0) {
    return str("planes, ", planes.blocks, " blocks, ", planes.tiles, " tiles at a time, ",
               planes.stages, " stages");
  }
  const GemvDigitPlan digits = plan_gemv_digits(shape, M, limits);
  if (digits.blocks > 0)
    return str("digits, ", digits.blocks, " blocks, ", digits.stages, " stages");
  return str(plan_gemv(shape, device.num_sms));
}

}  // namespace

std::span<const TimedGemvProblem> timed_gemv_problems() { return kProblems; }

std::vector<GemmTime> time_gemv(const CudaContext& context, const TimedGemvProblem& problem,
                                const TimeGemmOptions& options) {
  const bool is_s8 = problem.x_dtype == DType::kI8;
  const GpuRates& rates = options.rates;
  std::vector<GemmTime> times;
  for (const auto& [N, K] : timed_shapes(options)) {
    const GemvShape shape = shape_of(problem, N, K);
    const TimedWeight weight(context, problem, shape);
    for (const int64_t M : options.rows) {
      if (M > kTimedGemvRowsMax) continue;
      times.push_back({.problem = problem.name,
                       .kernel = describe_kernel(context.device, shape, M),
                       .N = N,
                       .K = K,
                       .M = M,
                       .weight_bytes = weight.weight_bytes(),
                       .time = weight.time(M),
                       .floor_microseconds = floor_microseconds(
                           rates, {.N = N,
                                   .K = K,
                                   .M = M,
                                   .weight_bytes = weight.weight_bytes(),
                                   .input_bytes = is_s8 ? 1 : 2,
                                   .operations_per_second =
                                       is_s8 ? rates.s8_per_second : rates.f16_per_second})});
    }
  }
  return times;
}

}  // namespace halley::cuda
