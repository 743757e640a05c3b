// Every product of the table against f64, in all types and at odd sizes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Largest error relative to the sum of |x w|, before the output is rounded. Tensor cores add
/// groups of products with a few bits less than f32; those of FP8 keep 14 bits between steps in
/// which cuBLASLt moves them to f32.
double error_max_of(DType dtype) {
  if (dtype == DType::kF8E4M3) return 2e-3;
  return dtype == DType::kI8 ? 1e-6 : 5e-5;
}

bool is_code(DType dtype) { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }

/// Operands and outputs of one problem on the device and the host.
class Product {
 public:
  Product(const CudaGemmProblem& problem, int64_t M, float scale_spread = 4)
      : problem_(problem),
        M_(M),
        rows_(is_code(problem.dtype) ? round_up(M, kGemmPadding) : M),
        outputs_(is_code(problem.dtype) ? round_up(problem.N, kGemmPadding) : problem.N),
        inputs_(is_code(problem.dtype) ? round_up(problem.K, kGemmPadding) : problem.K),
        x_(problem.dtype, rows_, inputs_),
        w_(problem.dtype, outputs_, inputs_),
        y_(problem.y_dtype, M, problem.N) {
    x_values_ = fill(&x_, M, 11);
    w_values_ = fill(&w_, problem.N, 12);
    x_scales_ = random_scales(M, scale_spread, 13);
    w_scales_ = random_scales(problem.N, scale_spread, 14);
    // Sums of s8 are large: f16 outputs must hold them.
    constexpr float kOfS8 = 0x1p-14f;
    if (problem.dtype == DType::kI8) {
      for (float& scale : x_scales_) scale *= kOfS8;
    }
    if (problem.x_scale == ScaleSpan::kTensor) {
      std::fill(x_scales_.begin(), x_scales_.end(), 0.25f);
    }
    if (problem.w_scale == ScaleSpan::kTensor) std::fill(w_scales_.begin(), w_scales_.end(), 3.0f);
    offsets_ = random_scales(problem.N, scale_spread, 15);
    std::mt19937 random(16);
    std::normal_distribution<float> normal;
    for (int64_t n = 0; n < problem.N; ++n) {
      // Exact in all types, so that the rounded bias is the bias.
      bias_.push_back(bf16_to_f32(f32_to_bf16(normal(random))));
      bias_.back() = f16_to_f32(f32_to_f16(bias_.back()));
    }
    for (const float value : bias_) {
      rounded_bias_.push_back(problem.y_dtype == DType::kF16 ? f32_to_f16(value)
                                                             : f32_to_bf16(value));
    }
    for (int64_t m = 0; m < M; ++m) {
      double sum = 0;
      for (int64_t k = 0; k < inputs_; ++k) sum += x_value(m, k);
      x_sums_.push_back(static_cast<int32_t>(std::isnan(sum) ? 0 : sum));
    }
  }

  void run(const CudaContext& context, CublasLtGemm& lt, const CudaGemmKernel& kernel) {
    const DeviceArray<float> x_scales(with_one(x_scales_)), w_scales(with_one(w_scales_));
    const DeviceArray<float> offsets(with_one(offsets_)), bias(with_one(bias_));
    const DeviceArray<int32_t> sums(with_one(x_sums_));
    const DeviceArray<uint16_t> rounded_bias(with_one(rounded_bias_));
    CudaGemmOperands operands;
    operands.x = x_.matrix();
    operands.x.num_rows = M_;
    operands.x.num_cols = problem_.K;
    operands.w = w_.matrix();
    operands.w.num_rows = problem_.N;
    operands.w.num_cols = problem_.K;
    if (problem_.x_scale != ScaleSpan::kNone) {
      operands.scales.x_scales = x_scales.data();
      operands.scales.w_scales = w_scales.data();
      operands.scales.is_x_tensor = problem_.x_scale == ScaleSpan::kTensor;
      operands.scales.is_w_tensor = problem_.w_scale == ScaleSpan::kTensor;
    }
    if (problem_.has_offsets) {
      operands.scales.w_offsets = offsets.data();
      operands.scales.x_sums = sums.data();
    }
    if (problem_.has_bias) {
      operands.bias = bias.data();
      operands.rounded_bias = reinterpret_cast<const std::byte*>(rounded_bias.data());
    }
    kernel.launch(lt, context, problem_, operands, y_.matrix());
    context.stream.synchronize();  // the arrays above go away
  }

  /// cuBLASLt may round the sum to y's type before it adds the bias, and again behind it.
  void expect_right(const CudaContext& context, const CudaGemmKernel& kernel) {
    const std::vector<float> got = y_.get(context.stream);
    EXPECT_TRUE(y_.guards_are_intact(context.stream));
    const bool is_rounded_twice =
        problem_.has_bias && kernel.needs_algorithm && !kernel.writes_accumulators;
    for (int64_t m = 0; m < M_; ++m) {
      for (int64_t n = 0; n < problem_.N; ++n) {
        const Expected expected = expect(m, n);
        const double value = got[static_cast<size_t>(m * problem_.N + n)];
        if (std::isnan(expected.y)) {
          ASSERT_TRUE(std::isnan(value)) << "[" << m << ", " << n << "]: " << value;
          continue;
        }
        const double sum_error = error_max_of(problem_.dtype) * expected.magnitude;
        const double rounded = std::fabs(expected.y) + sum_error +
                               (is_rounded_twice ? std::fabs(expected.sum) + sum_error : 0.0);
        const double error_max = sum_error + 1.01 * half_step_of(problem_.y_dtype) * rounded + 1e-7;
        ASSERT_LE(std::fabs(value - expected.y), error_max)
            << "[" << m << ", " << n << "]: expected " << expected.y << ", got " << value;
      }
    }
  }

  std::vector<float> get(const CudaContext& context) const { return y_.get(context.stream); }
  /// Sets one input to NaN.
  void spoil(int64_t m, int64_t k) {
    x_values_[static_cast<size_t>(m * inputs_ + k)] = kNan;
    x_.set(x_values_);
  }

 private:
  struct Expected {
    double y = 0, sum = 0, magnitude = 0;  // sum: y without the bias
  };

  template <typename T>
  static std::vector<T> with_one(std::vector<T> values) {
    if (values.empty()) values.push_back({});
    return values;
  }

  float x_value(int64_t m, int64_t k) const {
    return x_values_[static_cast<size_t>(m * inputs_ + k)];
  }

  /// Random numbers of the type; columns of padding are zero, rows of padding the worst there is.
  std::vector<float> fill(DeviceMatrix* matrix, int64_t num_real, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> codes(-128, 127);
    std::vector<float> values;
    for (int64_t row = 0; row < matrix->num_rows(); ++row) {
      for (int64_t k = 0; k < inputs_; ++k) {
        const bool is_real = row < num_real && k < problem_.K;
        const float number =
            problem_.dtype == DType::kI8 ? static_cast<float>(codes(random)) : normal(random);
        values.push_back(is_real ? number : k >= problem_.K ? 0.0f : kNan);
      }
    }
    matrix->set(values);
    // What the type made of them.
    CudaStream stream;
    return matrix->get(stream);
  }

  static std::vector<float> random_scales(int64_t count, float spread, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> exponent(-spread, spread);
    std::vector<float> scales;
    for (int64_t i = 0; i < count; ++i) scales.push_back(std::exp2(exponent(random)));
    return scales;
  }

  Expected expect(int64_t m, int64_t n) const {
    Expected expected;
    for (int64_t k = 0; k < problem_.K; ++k) {
      const double term = double{x_value(m, k)} * w_values_[static_cast<size_t>(n * inputs_ + k)];
      expected.y += term;
      expected.magnitude += std::fabs(term);
    }
    const auto row = static_cast<size_t>(m), output = static_cast<size_t>(n);
    if (problem_.x_scale != ScaleSpan::kNone) {
      const double w_scale = w_scales_[output], x_scale = x_scales_[row];
      const double offset = problem_.has_offsets ? double{offsets_[output]} * x_sums_[row] : 0.0;
      expected.y = x_scale * (w_scale * expected.y - offset);
      expected.magnitude = x_scale * (w_scale * expected.magnitude + std::fabs(offset));
    }
    expected.sum = expected.y;
    if (problem_.has_bias) {
      expected.y += bias_[output];
      expected.magnitude += std::fabs(bias_[output]);
    }
    return expected;
  }

  CudaGemmProblem problem_;
  int64_t M_, rows_, outputs_, inputs_;
  DeviceMatrix x_, w_, y_;
  std::vector<float> x_values_, w_values_, x_scales_, w_scales_, offsets_, bias_;
  std::vector<int32_t> x_sums_;
  std::vector<uint16_t> rounded_bias_;
};

class GemmGpuTest : public testing::Test {
 protected:
  CudaDeviceInfo device_ = use_cuda_device(0);
  CudaStream stream_;
  DeviceArena workspace_{size_t{512} << 20, "a test's workspace"};
  CudaContext context_{device_, stream_, workspace_};
  CublasLtGemm lt_{context_, {}};

  /// The chosen kernel, and those behind it that say nothing against the problem.
  void check_all_kernels(const CudaGemmProblem& problem, int64_t M, float scale_spread = 4) {
    SCOPED_TRACE(str(problem, ", M = ", M));
    Product product(problem, M, scale_spread);
    const CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, &lt_);
    bool is_behind = false;
    for (const CudaGemmKernel& kernel : cuda_gemm_kernels()) {
      is_behind = is_behind || &kernel == choice.kernel;
      const bool is_for_few =
          kernel.rows_max > 0 && (kernel.needs_algorithm || M <= kernel.rows_max);
      if (!is_behind && !is_for_few) continue;
      if (kernel.dtype != problem.dtype || !kernel.why_not(problem).empty()) continue;
      SCOPED_TRACE(kernel.name);
      const size_t mark = workspace_.mark();
      product.run(context_, lt_, kernel);
      EXPECT_EQ(workspace_.mark(), mark);
      product.expect_right(context_, kernel);
      if (HasFatalFailure()) return;
    }
  }

  /// Those for few rows that are not cuBLASLt's.
  std::vector<const CudaGemmKernel*> own_few_rows_kernels(const CudaGemmProblem& problem) {
    std::vector<const CudaGemmKernel*> kernels;
    for (const CudaGemmKernel* kernel : choose_cuda_gemm_kernel(problem, &lt_).for_few_rows) {
      if (!kernel->needs_algorithm) kernels.push_back(kernel);
    }
    return kernels;
  }

  static CudaGemmProblem problem_of(DType dtype, DType y_dtype, int64_t N, int64_t K) {
    const ScaleSpan span = is_code(dtype) ? ScaleSpan::kRow : ScaleSpan::kNone;
    return {.dtype = dtype, .y_dtype = y_dtype, .N = N, .K = K, .x_scale = span, .w_scale = span};
  }
};

struct TypePair {
  DType dtype, y_dtype;
};
constexpr TypePair kTypePairs[] = {
    {DType::kF16, DType::kF16},     {DType::kF16, DType::kF32},    {DType::kBf16, DType::kBf16},
    {DType::kBf16, DType::kF32},    {DType::kF32, DType::kF32},    {DType::kF8E4M3, DType::kF16},
    {DType::kF8E4M3, DType::kBf16}, {DType::kF8E4M3, DType::kF32}, {DType::kI8, DType::kF16},
    {DType::kI8, DType::kBf16},     {DType::kI8, DType::kF32}};

TEST_F(GemmGpuTest, AllKernelsAreRightAtAllSizes) {
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1},    {7, 5},    {33, 17},  {64, 64},
                                               {48, 130}, {130, 48}, {96, 1030}};
  for (const TypePair& types : kTypePairs) {
    for (const auto& [N, K] : sizes) {
      for (const int64_t M : {1, 2, 15, 16, 17, 33, 100}) {
        CudaGemmProblem problem = problem_of(types.dtype, types.y_dtype, N, K);
        problem.has_bias = M % 2 == 1;
        problem.has_offsets = types.dtype == DType::kI8 && M % 3 != 0;
        check_all_kernels(problem, M);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GemmGpuTest, AllKernelsAreRightForManyRows) {
  for (const TypePair& types : kTypePairs) {
    for (const int64_t M : {31, 32, 64, 128, 129, 255, 256, 257, 300}) {
      check_all_kernels(problem_of(types.dtype, types.y_dtype, 80, 272), M);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GemmGpuTest, Fp8TakesOneScaleForEachTensor) {
  for (const DType y_dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
    for (const int64_t M : {1, 16, 50, 300}) {
      CudaGemmProblem problem = problem_of(DType::kF8E4M3, y_dtype, 96, 160);
      problem.x_scale = ScaleSpan::kTensor;
      problem.w_scale = ScaleSpan::kTensor;
      problem.has_bias = M % 16 == 0;
      check_all_kernels(problem, M);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GemmGpuTest, HopperRunsTheKernelsThatAreMeantForIt) {
  // Not a matter of correctness; but if cuBLASLt has no algorithm here, all FP8 and INT8 models
  // silently lose speed.
  const auto chosen = [&](CudaGemmProblem problem) {
    const CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, &lt_);
    return str(choice.kernel->name, " ", choice.rejections);
  };
  EXPECT_THAT(chosen(problem_of(DType::kF16, DType::kF16, 4096, 4096)),
              testing::StartsWith("gemm_f16_cublaslt"));
  EXPECT_THAT(chosen(problem_of(DType::kF8E4M3, DType::kBf16, 4096, 4096)),
              testing::StartsWith("gemm_fp8_row_cublaslt"));
  EXPECT_THAT(chosen(problem_of(DType::kI8, DType::kF16, 4096, 4096)),
              testing::StartsWith("gemm_s8_sums_cublaslt"));
  CudaGemmProblem tensor = problem_of(DType::kF8E4M3, DType::kBf16, 4096, 4096);
  tensor.x_scale = tensor.w_scale = ScaleSpan::kTensor;
  EXPECT_THAT(chosen(tensor), testing::StartsWith("gemm_fp8_tensor_cublaslt"));
}

TEST_F(GemmGpuTest, SumsOfManyOutputsRunInPieces) {
  // 512 rows of 65536 outputs are the most that fit at once.
  CudaGemmProblem problem = problem_of(DType::kI8, DType::kF32, 65536, 16);
  ASSERT_EQ(accumulator_rows_max(problem.N), 512);
  problem.has_offsets = true;
  const CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, &lt_);
  Product product(problem, 530);
  product.run(context_, lt_, *choice.kernel);
  product.expect_right(context_, *choice.kernel);
}

TEST_F(GemmGpuTest, KeepsScalesOfAllSizes) {
  for (const DType dtype : {DType::kI8, DType::kF8E4M3}) {
    check_all_kernels(problem_of(dtype, DType::kF32, 64, 128), 33, 40);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GemmGpuTest, NanStaysInItsRow) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF8E4M3}) {
    const DType y_dtype = is_code(dtype) ? DType::kF32 : dtype;
    const CudaGemmProblem problem = problem_of(dtype, y_dtype, 64, 96);
    Product product(problem, 40);
    product.spoil(17, 5);
    const CudaGemmKernel& kernel = *choose_cuda_gemm_kernel(problem, &lt_).kernel;
    product.run(context_, lt_, kernel);
    product.expect_right(context_, kernel);
  }
}

TEST_F(GemmGpuTest, EmptyProductsAreTheBias) {
  for (const TypePair& types : kTypePairs) {
    CudaGemmProblem problem = problem_of(types.dtype, types.y_dtype, 33, 0);
    problem.has_bias = true;
    check_all_kernels(problem, 5);
  }
}

TEST_F(GemmGpuTest, OneAlgorithmGivesARowTheSameBitsInEveryBatch) {
  CublasLtGemm invariant(context_, {.choice = {.is_batch_invariant = true}});
  for (const TypePair& types : kTypePairs) {
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{128, 8192}, {4096, 512}}) {
      const CudaGemmProblem problem = problem_of(types.dtype, types.y_dtype, N, K);
      const CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, &invariant);
      EXPECT_THAT(choice.for_few_rows, testing::IsEmpty());
      const CudaGemmKernel& kernel = *choice.kernel;
      SCOPED_TRACE(str(problem, ", ", kernel.name));
      Product all(problem, 300);
      all.run(context_, invariant, kernel);
      const std::vector<float> expected = all.get(context_);
      for (const int64_t M : {1, 2, 16, 17, 64, 128, 129, 256, 299}) {
        Product some(problem, M);
        some.run(context_, invariant, kernel);
        const std::vector<float> got = some.get(context_);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
              << "M " << M << ", element " << i;
        }
      }
    }
  }
}

TEST_F(GemmGpuTest, FewRowsAreRightAtAllSizes) {
  // One chunk of inputs and many, tiles that are not full, and few and many outputs of a block.
  const std::pair<int64_t, int64_t> sizes[] = {{1, 64},    {1, 128},   {17, 64},    {33, 256},
                                               {16, 4096}, {100, 640}, {3200, 192}, {5500, 128}};
  for (const TypePair& types : kTypePairs) {
    if (types.dtype == DType::kF32) continue;
    for (const auto& [N, K] : sizes) {
      for (const int64_t M : {1, 2, 3, 7, 8, 31, 64}) {
        if (N > 1000 && M != 1 && M != 8 && M != 31) continue;  // for the time of the reference
        CudaGemmProblem problem = problem_of(types.dtype, types.y_dtype, N, K);
        problem.has_bias = M % 2 == 1;
        problem.has_offsets = types.dtype == DType::kI8 && M % 3 != 0;
        for (const CudaGemmKernel* kernel : own_few_rows_kernels(problem)) {
          if (M > kernel->rows_max) continue;
          SCOPED_TRACE(str(problem, ", M = ", M, ", ", kernel->name));
          Product product(problem, M);
          product.run(context_, lt_, *kernel);
          product.expect_right(context_, *kernel);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(GemmGpuTest, FewRowsHaveTheSameBitsInEveryBatch) {
  for (const TypePair& types : kTypePairs) {
    if (types.dtype == DType::kF32) continue;
    for (const int64_t N : {64, 3200, 4096, 5500}) {
      if (N > 64 && types.y_dtype != DType::kF32) continue;  // for the time that the host takes
      const CudaGemmProblem problem = problem_of(types.dtype, types.y_dtype, N, 1280);
      for (const CudaGemmKernel* kernel : own_few_rows_kernels(problem)) {
        SCOPED_TRACE(str(problem, ", ", kernel->name));
        Product all(problem, kernel->rows_max);
        all.run(context_, lt_, *kernel);
        const std::vector<float> expected = all.get(context_);
        for (const int64_t M : {1, 3, 7, 9, 17, 40}) {
          if (M > kernel->rows_max) continue;
          Product some(problem, M);
          some.run(context_, lt_, *kernel);
          const std::vector<float> got = some.get(context_);
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
                << "M " << M << ", element " << i;
          }
        }
      }
    }
  }
}

TEST_F(GemmGpuTest, DescribesWhatRuns) {
  const LtProblem problem = {.N = 4096, .K = 4096, .w_stride = 4096};
  EXPECT_EQ(lt_.why_no_algorithm(problem), "");
  EXPECT_THAT(lt_.describe(problem, 16), testing::HasSubstr("algorithm "));
  CublasLtGemm invariant(context_, {.choice = {.is_batch_invariant = true}});
  EXPECT_EQ(invariant.describe(problem, 1), invariant.describe(problem, 8192));
  EXPECT_THAT(invariant.describe(problem, 1), testing::ContainsRegex("split-K (0|1|-1),"));
}

TEST_F(GemmGpuTest, RejectsRowsThatNoAlgorithmTakes) {
  // FP8 with 17 inputs and without padding.
  DeviceMatrix x(DType::kF8E4M3, 4, 17, 0), w(DType::kF8E4M3, 32, 17, 0), y(DType::kF16, 4, 32);
  EXPECT_THAT([&] { lt_.multiply(context_, {.x = x.matrix(), .w = w.matrix()}, y.matrix()); },
              testing::ThrowsMessage<DeviceError>(
                  testing::HasSubstr("cuBLASLt: expected an algorithm for f8_e4m3 to f16")));
}

}  // namespace
}  // namespace halley::cuda
