#include "halley/cuda/gemm/time_gemm.h"

#include <algorithm>
#include <array>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/streamed_gemm.h"
#include "halley/cuda/gemm/streamed_settings.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {
namespace {

constexpr std::array<TimedGemmProblem, 4> kProblems = {{
    {"f16", DType::kF16, ScaleSpan::kNone},
    {"fp8_tensor", DType::kF8E4M3, ScaleSpan::kTensor},
    {"fp8_row", DType::kF8E4M3, ScaleSpan::kRow},
    {"s8", DType::kI8, ScaleSpan::kRow},
}};

/// Random numbers of moderate size, so that the tensor cores draw the power that they draw with
/// real ones.
std::vector<uint8_t> random_numbers(DType dtype) {
  constexpr size_t kNumBytes = size_t{8} << 20;
  if (dtype == DType::kF16) return random_f16(kNumBytes);
  std::vector<uint8_t> numbers = random_codes(kNumBytes);
  if (dtype == DType::kF8E4M3) {
    for (uint8_t& number : numbers) number &= 0xBF;  // below 2, no NaN
  }
  return numbers;
}

double weight_bytes_of(const CudaGemmProblem& problem) {
  return static_cast<double>(problem.N) * static_cast<double>(problem.K) * bits_of(problem.dtype) /
         8;
}

/// A weight's copies, and what goes with it.
class TimedProduct {
 public:
  TimedProduct(const CudaContext& context, const CudaGemmProblem& problem,
               std::span<const uint8_t> weight_pattern, int64_t rows_max)
      : problem_(problem),
        element_bytes_(bits_of(problem.dtype) / 8),
        weight_bytes_(
            static_cast<size_t>(round_up(problem.N, kGemmPadding) * stride() * element_bytes_)),
        num_copies_(num_timed_copies(context, weight_bytes_)),
        w_(num_copies_ * weight_bytes_, "weights to time"),
        x_(static_cast<size_t>(round_up(rows_max, kGemmPadding) * stride() * element_bytes_),
           "inputs to time"),
        y_(static_cast<size_t>(rows_max * problem.N) * sizeof(uint16_t), "outputs to time"),
        scales_(static_cast<size_t>(rows_max + problem.N) * sizeof(float), "scales to time") {
    fill_pattern(w_, weight_pattern);
    fill_pattern(x_, random_numbers(problem.dtype));
    fill_numbers(scales_, 1);
  }

  ConstMatrix inputs(int64_t M) const {
    return {x_.data(), problem_.dtype, M, problem_.K, stride()};
  }

  size_t num_copies() const { return num_copies_; }
  std::function<void(size_t)> streamed(const CudaContext& context, const StreamedPlan& plan,
                                       int64_t M) const {
    return [this, &context, plan, M](size_t copy) {
      const CudaGemmOperands operands = this->operands(copy, M);
      streamed_gemm_planned(context, {.x = operands.x, .w = operands.w, .scales = operands.scales},
                            plan, outputs(M));
    };
  }

  ProductTime time(CublasLtGemm& lt, const CudaContext& context, const CudaGemmKernel& kernel,
                   int64_t M) const {
    return time_starts(context, num_copies_,
                       [&](size_t copy) { launch(lt, context, kernel, copy, M); });
  }

 private:
  int64_t stride() const { return round_up(problem_.K, kGemmPadding); }

  Matrix outputs(int64_t M) const {
    return {y_.data(), problem_.y_dtype, M, problem_.N, problem_.N};
  }

  CudaGemmOperands operands(size_t copy, int64_t M) const {
    CudaGemmOperands operands = {
        .x = inputs(M),
        .w = {w_.data() + copy * weight_bytes_, problem_.dtype, problem_.N, problem_.K, stride()}};
    if (problem_.x_scale != ScaleSpan::kNone) {
      const bool is_tensor = problem_.x_scale == ScaleSpan::kTensor;
      const auto* scales = reinterpret_cast<const float*>(scales_.data());
      operands.scales = {.x_scales = scales,
                         .w_scales = scales,
                         .is_x_tensor = is_tensor,
                         .is_w_tensor = is_tensor};
    }
    return operands;
  }

  void launch(CublasLtGemm& lt, const CudaContext& context, const CudaGemmKernel& kernel,
              size_t copy, int64_t M) const {
    kernel.launch(lt, context, problem_, operands(copy, M), outputs(M));
  }

  CudaGemmProblem problem_;
  int64_t element_bytes_;
  size_t weight_bytes_, num_copies_;
  DeviceBuffer w_, x_, y_, scales_;
};

/// All that can run M rows: those of cuBLASLt for few rows up to twice their limit, which shows
/// where it should be.
std::vector<const CudaGemmKernel*> timed_kernels(const CudaGemmChoice& choice, int64_t M) {
  std::vector<const CudaGemmKernel*> kernels;
  for (const CudaGemmKernel* few : choice.for_few_rows) {
    const int64_t rows_max = few->needs_algorithm ? 2 * few->rows_max : few->rows_max;
    if (M <= rows_max) kernels.push_back(few);
  }
  kernels.push_back(choice.kernel);
  return kernels;
}

}  // namespace

double gemm_floor_microseconds(const GpuRates& rates, const CudaGemmProblem& problem, int64_t M) {
  return floor_microseconds(
      rates, {.N = problem.N,
              .K = problem.K,
              .M = M,
              .weight_bytes = weight_bytes_of(problem),
              .input_bytes = bits_of(problem.dtype) / 8,
              .operations_per_second = problem.dtype == DType::kI8       ? rates.s8_per_second
                                       : problem.dtype == DType::kF8E4M3 ? rates.e4m3_per_second
                                                                         : rates.f16_per_second});
}

std::vector<GemmTime> time_gemm(const CudaContext& context, CublasLtGemm& lt,
                                const TimedGemmProblem& timed,
                                std::span<const uint8_t> weight_pattern,
                                const TimeGemmOptions& options) {
  std::vector<GemmTime> times;
  for (const auto& [N, K] : timed_shapes(options)) {
    const CudaGemmProblem problem = {.dtype = timed.dtype,
                                     .y_dtype = DType::kF16,
                                     .N = N,
                                     .K = K,
                                     .x_scale = timed.scale,
                                     .w_scale = timed.scale};
    const CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, &lt);
    const TimedProduct product(context, problem, weight_pattern, timed_rows_max(options));
    for (const int64_t M : options.rows) {
      for (const CudaGemmKernel* kernel : timed_kernels(choice, M)) {
        times.push_back({.problem = timed.name,
                         .kernel = kernel->name,
                         .rejections = str(kernel->rows_max > 0 ? choice.few_rows_rejections
                                                                : choice.rejections),
                         .is_chosen = kernel == &choice.kernel_for(product.inputs(M)),
                         .N = N,
                         .K = K,
                         .M = M,
                         .weight_bytes = weight_bytes_of(problem),
                         .time = product.time(lt, context, *kernel, M),
                         .floor_microseconds = gemm_floor_microseconds(options.rates, problem, M)});
      }
    }
  }
  return times;
}

std::vector<GemmTime> time_gemm(const CudaContext& context, CublasLtGemm& lt,
                                std::string_view problem, const TimeGemmOptions& options) {
  const auto* found =
      std::find_if(kProblems.begin(), kProblems.end(),
                   [&](const TimedGemmProblem& each) { return each.name == problem; });
  HALLEY_CHECK(found != kProblems.end(), problem);
  return time_gemm(context, lt, *found, random_numbers(found->dtype), options);
}

std::vector<TunedPlan> tune_streamed_gemm(const CudaContext& context, const TunedGemm& gemm,
                                          const std::vector<int64_t>& rows,
                                          const OnTunedPlan& on_plan) {
  std::vector<TunedPlan> tuned;
  const auto shape = streamed_shape_of(gemm, 1);
  HALLEY_CHECK(shape, gemm.kernel, gemm.N, gemm.K);
  const ScaleSpan scale = shape->dtype == DType::kF8E4M3 || shape->dtype == DType::kI8
                              ? ScaleSpan::kRow
                              : ScaleSpan::kNone;
  const CudaGemmProblem problem = {.dtype = shape->dtype,
                                   .y_dtype = DType::kF16,
                                   .N = gemm.N,
                                   .K = gemm.K,
                                   .x_scale = scale,
                                   .w_scale = scale};
  const TimedProduct product(context, problem, random_numbers(shape->dtype), kStreamedRowsMax);
  const StreamedDevice device = streamed_device(context);
  for (const int64_t M : rows) {
    const auto with_rows = streamed_shape_of(gemm, M);
    if (!with_rows) continue;
    const int split = choose_streamed(*with_rows, device).split;
    std::vector<TunedCandidate> candidates;
    for (const StreamedChoice& choice : streamed_choices(*with_rows, device, split)) {
      candidates.push_back(
          {settings_of(choice),
           product.streamed(context, streamed_plan_of(*with_rows, device, choice), M)});
    }
    // Weights of which a CTA has more than the timed rounds keep the rule's choice.
    if (candidates.empty()) continue;
    tuned.push_back(fastest_plan(context, product.num_copies(), gemm, M, candidates));
    on_plan(tuned.back());
  }
  return tuned;
}

}  // namespace halley::cuda
