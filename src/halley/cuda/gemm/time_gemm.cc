#include "halley/cuda/gemm/time_gemm.h"

#include <algorithm>
#include <array>
#include <random>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_graph.h"

namespace halley::cuda {
namespace {

constexpr int kNumRepeats = 3;
constexpr int64_t kNumProductsMin = 20;

struct TimedKind {
  const char* name;
  DType dtype;
  ScaleSpan scale;
};

constexpr std::array<TimedKind, 4> kTimedKinds = {{
    {"f16", DType::kF16, ScaleSpan::kNone},
    {"fp8_tensor", DType::kF8E4M3, ScaleSpan::kTensor},
    {"fp8_row", DType::kF8E4M3, ScaleSpan::kRow},
    {"s8", DType::kI8, ScaleSpan::kRow},
}};

/// Random numbers of moderate size in any of the types, so that the tensor cores draw the power
/// that they draw with real ones: a pattern that is repeated through the buffer.
void fill_random(std::byte* device, size_t num_bytes, DType dtype) {
  constexpr size_t kPatternBytes = size_t{8} << 20;
  std::vector<uint8_t> pattern(std::min(num_bytes, kPatternBytes));
  std::mt19937 random(7);
  for (size_t i = 0; i < pattern.size(); ++i) {
    const auto bits = static_cast<uint8_t>(random());
    switch (dtype) {
      case DType::kF16:  // exponents of 2^-3 to 1
        pattern[i] = i % 2 == 0 ? bits : static_cast<uint8_t>(0x30 | (bits & 0x8B));
        break;
      case DType::kF8E4M3:  // below 2, no NaN
        pattern[i] = bits & 0xBF;
        break;
      default:
        pattern[i] = bits;
    }
  }
  for (size_t begin = 0; begin < num_bytes; begin += pattern.size()) {
    const size_t count = std::min(pattern.size(), num_bytes - begin);
    check_cuda(cudaMemcpy(device + begin, pattern.data(), count, cudaMemcpyHostToDevice),
               "copy of random numbers");
  }
}

void fill_ones(float* device, int64_t count) {
  const std::vector<float> ones(static_cast<size_t>(count), 1.0f);
  check_cuda(cudaMemcpy(device, ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice),
             "copy of scales");
}

/// A weight's copies, and what goes with it.
class TimedProduct {
 public:
  TimedProduct(const CudaContext& context, const CudaGemmProblem& problem, int64_t rows_max)
      : problem_(problem),
        element_bytes_(bits_of(problem.dtype) / 8),
        weight_bytes_(
            static_cast<size_t>(round_up(problem.N, kGemmPadding) * stride() * element_bytes_)),
        num_copies_(std::max<size_t>(2, ceil_div(3 * context.device.l2_bytes, weight_bytes_))),
        w_(num_copies_ * weight_bytes_, "weights to time"),
        x_(static_cast<size_t>(round_up(rows_max, kGemmPadding) * stride() * element_bytes_),
           "inputs to time"),
        y_(static_cast<size_t>(rows_max * problem.N) * sizeof(uint16_t), "outputs to time"),
        scales_(static_cast<size_t>(rows_max + problem.N) * sizeof(float), "scales to time") {
    fill_random(w_.data(), w_.num_bytes(), problem.dtype);
    fill_random(x_.data(), x_.num_bytes(), problem.dtype);
    fill_ones(scales(), rows_max + problem.N);
    // The stream does not wait for copies beside it.
    check_cuda(cudaDeviceSynchronize(), "copies of random numbers");
  }

  size_t num_copies() const { return num_copies_; }

  ConstMatrix inputs(int64_t M) const {
    return {x_.data(), problem_.dtype, M, problem_.K, stride()};
  }

  void launch(CublasLtGemm& lt, const CudaContext& context, const CudaGemmKernel& kernel,
              size_t copy, int64_t M) const {
    CudaGemmOperands operands = {
        .x = inputs(M),
        .w = {w_.data() + copy * weight_bytes_, problem_.dtype, problem_.N, problem_.K, stride()}};
    if (problem_.x_scale != ScaleSpan::kNone) {
      const bool is_tensor = problem_.x_scale == ScaleSpan::kTensor;
      operands.scales = {.x_scales = scales(),
                         .w_scales = scales(),
                         .is_x_tensor = is_tensor,
                         .is_w_tensor = is_tensor};
    }
    kernel.launch(lt, context, problem_, operands,
                  {y_.data(), problem_.y_dtype, M, problem_.N, problem_.N});
  }

 private:
  int64_t stride() const { return round_up(problem_.K, kGemmPadding); }
  float* scales() const { return reinterpret_cast<float*>(scales_.data()); }

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

double time_products(const CudaContext& context, size_t num_copies,
                     const std::function<void(size_t copy)>& queue) {
  const auto copies = static_cast<int64_t>(num_copies);
  const int64_t num_products = round_up(kNumProductsMin, copies);
  queue(0);  // what CUDA loads at the first call
  const CudaGraph graph = CudaGraph::capture(context.stream, [&] {
    for (int64_t i = 0; i < num_products; ++i) queue(static_cast<size_t>(i % copies));
  });
  graph.launch(context.stream);
  const CudaEvent start(CudaEvent::Time::kYes), end(CudaEvent::Time::kYes);
  double best = 0;
  for (int repeat = 0; repeat < kNumRepeats; ++repeat) {
    context.stream.record(start);
    graph.launch(context.stream);
    context.stream.record(end);
    end.synchronize();
    const double microseconds =
        1e3 * end.milliseconds_since(start) / static_cast<double>(num_products);
    if (repeat == 0 || microseconds < best) best = microseconds;
  }
  return best;
}

std::vector<std::pair<int64_t, int64_t>> llama_gemm_shapes() {
  return {{6144, 4096},  {4096, 4096}, {28672, 4096}, {4096, 14336},
          {10240, 8192}, {8192, 8192}, {57344, 8192}, {8192, 28672}};
}

double gemm_floor_microseconds(const GpuRates& rates, const CudaGemmProblem& problem, int64_t M) {
  const auto rows = static_cast<double>(M), outputs = static_cast<double>(problem.N);
  const auto inputs = static_cast<double>(problem.K);
  const double num_bytes = (outputs + rows) * inputs * bits_of(problem.dtype) / 8 +
                           rows * outputs * bits_of(problem.y_dtype) / 8;
  const double per_second = problem.dtype == DType::kI8       ? rates.s8_per_second
                            : problem.dtype == DType::kF8E4M3 ? rates.e4m3_per_second
                                                              : rates.f16_per_second;
  return 1e6 *
         std::max(num_bytes / rates.bytes_per_second, 2 * rows * outputs * inputs / per_second);
}

std::vector<GemmTime> time_gemm(const CudaContext& context, CublasLtGemm& lt,
                                const TimeGemmOptions& options) {
  std::vector<GemmTime> times;
  if (options.rows.empty()) return times;
  const int64_t rows_max = *std::max_element(options.rows.begin(), options.rows.end());
  const auto shapes = options.shapes.empty() ? llama_gemm_shapes() : options.shapes;
  for (const auto& shape : shapes) {
    for (const TimedKind& kind : kTimedKinds) {
      const CudaGemmProblem problem = {.dtype = kind.dtype,
                                       .y_dtype = DType::kF16,
                                       .N = shape.first,
                                       .K = shape.second,
                                       .x_scale = kind.scale,
                                       .w_scale = kind.scale};
      const CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, &lt);
      const TimedProduct product(context, problem, rows_max);
      for (const int64_t M : options.rows) {
        for (const CudaGemmKernel* kernel : timed_kernels(choice, M)) {
          const auto queue = [&](size_t copy) { product.launch(lt, context, *kernel, copy, M); };
          times.push_back(
              {.problem = kind.name,
               .kernel = kernel->name,
               .refusals = str(kernel->rows_max > 0 ? choice.few_rows_refusals : choice.refusals),
               .is_chosen = kernel == &choice.kernel_for(product.inputs(M)),
               .N = problem.N,
               .K = problem.K,
               .M = M,
               .microseconds = time_products(context, product.num_copies(), queue),
               .floor_microseconds = gemm_floor_microseconds(options.rates, problem, M)});
        }
      }
    }
  }
  return times;
}

}  // namespace halley::cuda
