// What is decided without a GPU: buckets, keys, rejections, pieces, floors.
#include <cstdint>
#include <string>

#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/cublaslt_library.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/gemm/streamed_plan.h"
#include "halley/cuda/gemm/time_gemm.h"

namespace halley::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

TEST(CublasLtLibrary, OpensOrSaysWhatIsMissing) {
  try {
    EXPECT_STREQ(cublaslt().status_name(CUBLAS_STATUS_NOT_SUPPORTED),
                 "CUBLAS_STATUS_NOT_SUPPORTED");
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("libcublasLt.so."));
  }
}

TEST(LtBuckets, ArePowersOfTwoWithinLimits) {
  const LtChoice choice;
  const std::pair<int64_t, int64_t> expected[] = {
      {1, 16},    {16, 16},     {17, 32},     {32, 32},     {33, 64},      {256, 256},
      {257, 512}, {8191, 8192}, {8192, 8192}, {8193, 8192}, {100000, 8192}};
  for (const auto& [M, bucket] : expected) EXPECT_EQ(row_bucket(choice, M), bucket) << M;
}

TEST(LtBuckets, StayWithinALimitThatIsNoPowerOfTwo) {
  const LtChoice choice = {.num_rows_max = 100};
  EXPECT_EQ(row_bucket(choice, 64), 64);
  EXPECT_EQ(row_bucket(choice, 65), 100);
  EXPECT_EQ(row_bucket(choice, 5000), 100);
  EXPECT_EQ(row_bucket({.num_rows_max = 1}, 3), kSmallestBucket);
}

TEST(LtBuckets, BatchInvariantChoiceKnowsNoM) {
  const LtChoice choice = {.is_batch_invariant = true, .invariant_rows = 96};
  const LtProblem problem = {.N = 64, .K = 32, .w_stride = 32};
  for (const int64_t M : {1, 16, 17, 300, 100000}) {
    EXPECT_EQ(row_bucket(choice, M), 96) << M;
    EXPECT_EQ(key_of(choice, problem, M), key_of(choice, problem, 1)) << M;
  }
}

TEST(LtKeys, DifferInAllThatAChoiceDependsOn) {
  const LtChoice choice;
  const LtProblem problem = {.N = 64, .K = 32, .w_stride = 32};
  const LtKey key = key_of(choice, problem, 16);
  EXPECT_EQ(key, key_of(choice, problem, 3));
  EXPECT_NE(key, key_of(choice, problem, 17));
  LtProblem others[9] = {problem, problem, problem, problem, problem,
                         problem, problem, problem, problem};
  others[0].dtype = DType::kBf16;
  others[1].y_dtype = DType::kF32;
  others[2].scaling = LtScaling::kTensor;
  others[3].has_bias = true;
  others[4].N = 65;
  others[5].K = 33;
  others[6].w_stride = 40;
  others[7].x_alignment = 2;
  others[8].y_alignment = 8;
  for (const LtProblem& other : others) EXPECT_NE(key, key_of(choice, other, 16)) << other;
}

TEST(RowAlignment, IsThatOfEveryRow) {
  const auto of = [](uintptr_t address, DType dtype, int64_t stride) {
    // Never read.
    return row_alignment({reinterpret_cast<const std::byte*>(address), dtype, 3, 1, stride});
  };
  EXPECT_EQ(of(256, DType::kF16, 64), 16);
  EXPECT_EQ(of(256, DType::kF16, 8), 16);
  EXPECT_EQ(of(256, DType::kF16, 4), 8);
  EXPECT_EQ(of(256, DType::kF16, 33), 2);
  EXPECT_EQ(of(258, DType::kF16, 64), 2);
  EXPECT_EQ(of(256, DType::kI8, 33), 1);
  EXPECT_EQ(of(256, DType::kF32, 2), 8);
  EXPECT_EQ(alignment_of(0), 16);
  EXPECT_EQ(alignment_of(1024), 16);
}

std::string chosen(const CudaGemmProblem& problem) {
  return choose_cuda_gemm_kernel(problem, nullptr).kernel->name;
}

TEST(CudaGemmChoice, TakesCublasltWhereItFits) {
  EXPECT_EQ(chosen({.dtype = DType::kF16, .y_dtype = DType::kF16, .N = 33, .K = 7}),
            "gemm_f16_cublaslt");
  EXPECT_EQ(chosen({.dtype = DType::kBf16, .y_dtype = DType::kF32, .N = 64, .K = 64}),
            "gemm_bf16_cublaslt");
  EXPECT_EQ(chosen({.dtype = DType::kF32, .y_dtype = DType::kF32, .N = 64, .K = 64}),
            "gemm_f32_cublaslt");
  EXPECT_EQ(chosen({.dtype = DType::kI8,
                    .y_dtype = DType::kBf16,
                    .N = 33,
                    .K = 7,
                    .x_scale = ScaleSpan::kRow,
                    .w_scale = ScaleSpan::kRow,
                    .has_offsets = true,
                    .has_bias = true}),
            "gemm_s8_sums_cublaslt");
}

TEST(CudaGemmChoice, TakesThePlainKernelForWhatIsEmpty) {
  const auto choice = choose_cuda_gemm_kernel({.N = 64, .K = 0}, nullptr);
  EXPECT_STREQ(choice.kernel->name, "gemm_f16_plain");
  EXPECT_THAT(choice.rejections,
              ElementsAre("gemm_f16_cublaslt: needs outputs and inputs, the weight is [64, 0]"));
  EXPECT_EQ(chosen({.dtype = DType::kI8, .N = 0, .K = 64}), "gemm_s8_plain");
}

TEST(CudaGemmChoice, Fp8FollowsTheScales) {
  CudaGemmProblem problem = {.dtype = DType::kF8E4M3,
                             .y_dtype = DType::kBf16,
                             .N = 64,
                             .K = 33,
                             .x_scale = ScaleSpan::kTensor,
                             .w_scale = ScaleSpan::kTensor,
                             .has_bias = true};
  EXPECT_EQ(chosen(problem), "gemm_fp8_tensor_cublaslt");
  problem.x_scale = ScaleSpan::kRow;
  EXPECT_EQ(chosen(problem), "gemm_fp8_sums_cublaslt");
  problem.w_scale = ScaleSpan::kRow;
  EXPECT_EQ(chosen(problem), "gemm_fp8_row_cublaslt");
}

TEST(CudaGemmChoice, SaysWhyBetterKernelsDoNotFit) {
  CudaGemmProblem problem = {.dtype = DType::kF8E4M3,
                             .y_dtype = DType::kBf16,
                             .N = 40,
                             .K = 64,
                             .x_scale = ScaleSpan::kRow,
                             .w_scale = ScaleSpan::kRow};
  const auto rejections = [&] { return choose_cuda_gemm_kernel(problem, nullptr).rejections; };
  EXPECT_THAT(rejections(),
              ElementsAre(HasSubstr("needs a multiple of 16 outputs, the weight has 40"),
                          HasSubstr("needs a multiple of 16 outputs")));
  problem.N = 64;
  EXPECT_THAT(rejections(),
              ElementsAre("gemm_fp8_tensor_cublaslt: needs one scale for all of x, it "
                          "has one a row"));
  problem.is_y_aligned = false;
  EXPECT_THAT(rejections(), ElementsAre(HasSubstr("begin at multiples of 16 bytes"),
                                        HasSubstr("begin at multiples of 16 bytes")));
  problem.is_y_aligned = true;
  problem.has_bias = true;
  problem.y_dtype = DType::kF32;
  EXPECT_THAT(rejections(), ElementsAre(HasSubstr("adds no bias to f32 outputs"),
                                        HasSubstr("adds no bias to f32 outputs")));
  problem.has_bias = false;
  problem.has_offsets = true;
  EXPECT_THAT(rejections(),
              ElementsAre(HasSubstr("takes no offsets"), HasSubstr("takes no offsets")));
}

TEST(CudaGemmChoice, RejectsOutputsOfOtherTypes) {
  EXPECT_THAT([] { choose_cuda_gemm_kernel({.y_dtype = DType::kI8, .N = 1, .K = 1}, nullptr); },
              ThrowsMessage<UnsupportedError>(HasSubstr(
                  "gemm on the GPU: expected a kernel for a f16 weight [1, 1], outputs i8, got "
                  "none (")));
  const auto choice = choose_cuda_gemm_kernel({.y_dtype = DType::kBf16, .N = 1, .K = 1}, nullptr);
  EXPECT_THAT(choice.rejections, ElementsAre("gemm_f16_cublaslt: writes f16 or f32, not bf16"));
}

TEST(CudaGemmChoice, HasAKernelForFewRowsBesideTheOther) {
  const auto few = [](const CudaGemmProblem& problem) {
    const CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, nullptr);
    std::string names;
    for (const CudaGemmKernel* kernel : choice.for_few_rows) {
      names += str(names.empty() ? "" : " ", kernel->name);
    }
    return names.empty() ? str(choice.few_rows_rejections) : names;
  };
  EXPECT_EQ(few({.dtype = DType::kBf16, .y_dtype = DType::kBf16, .N = 1, .K = 64}),
            "gemm_bf16_streamed");
  EXPECT_EQ(few({.dtype = DType::kI8, .N = 5, .K = 128, .has_offsets = true}), "gemm_s8_streamed");
  EXPECT_EQ(few({.dtype = DType::kF16, .y_dtype = DType::kF32, .N = 33, .K = 72}),
            "[gemm_f16_streamed: needs rows of a multiple of 128 bytes, those of the weight have "
            "144]");
  EXPECT_THAT(few({.dtype = DType::kF8E4M3, .N = 5, .K = 64}),
              HasSubstr("gemm_fp8_streamed: needs rows of a multiple of 128 bytes"));
  EXPECT_THAT(few({.dtype = DType::kF16, .N = 33, .K = 0}), HasSubstr("needs outputs and inputs"));
  EXPECT_EQ(few({.dtype = DType::kF32, .y_dtype = DType::kF32, .N = 8, .K = 8}), "[]");
}

TEST(CudaGemmChoice, RowsAndTheirAlignmentDecideBetweenBoth) {
  const CudaGemmChoice choice = choose_cuda_gemm_kernel({.N = 64, .K = 64}, nullptr);
  ASSERT_EQ(choice.for_few_rows.size(), 1U);
  const CudaGemmKernel* more = choice.for_few_rows[0];
  const auto kernel_for = [&](uintptr_t address, int64_t M, int64_t stride) {
    // Never read.
    return &choice.kernel_for(
        {reinterpret_cast<const std::byte*>(address), DType::kF16, M, 64, stride});
  };
  EXPECT_EQ(kernel_for(256, 1, 64), more);
  EXPECT_EQ(kernel_for(256, 9, 72), more);
  EXPECT_EQ(kernel_for(256, 32, 64), more);
  EXPECT_EQ(kernel_for(256, more->rows_max + 1, 64), choice.kernel);
  EXPECT_EQ(kernel_for(264, 1, 64), choice.kernel);
  EXPECT_EQ(kernel_for(256, 2, 68), choice.kernel);
}

TEST(CudaGemmChoice, TakesTheFastestKernelForTheShapeAndTheRows) {
  const auto name = [](DType dtype, int64_t N, int64_t K, int64_t M) {
    const bool is_codes = dtype == DType::kF8E4M3;
    const ScaleSpan span = is_codes ? ScaleSpan::kRow : ScaleSpan::kNone;
    const CudaGemmChoice choice = choose_cuda_gemm_kernel(
        {.dtype = dtype, .N = N, .K = K, .x_scale = span, .w_scale = span}, nullptr);
    // Never read.
    return std::string(
        choice.kernel_for({reinterpret_cast<const std::byte*>(256), dtype, M, K, K}).name);
  };
  EXPECT_EQ(name(DType::kF16, 4096, 4096, 1), "gemm_f16_streamed");
  EXPECT_EQ(name(DType::kF16, 4096, 4096, 9), "gemm_f16_streamed");
  EXPECT_EQ(name(DType::kF16, 4096, 4096, 33), "gemm_f16_cublaslt");
  EXPECT_EQ(name(DType::kF16, 4096, 14336, 64), "gemm_f16_streamed");
  EXPECT_EQ(name(DType::kF16, 28672, 4096, 1), "gemm_f16_streamed");
  EXPECT_EQ(name(DType::kF16, 28672, 4096, 64), "gemm_f16_streamed");
  EXPECT_EQ(name(DType::kF16, 28672, 4096, 65), "gemm_f16_cublaslt");
  EXPECT_EQ(name(DType::kF16, 28672, 4104, 1), "gemm_f16_cublaslt");
  EXPECT_EQ(name(DType::kF8E4M3, 6144, 4096, 8), "gemm_fp8_streamed");
  EXPECT_EQ(name(DType::kF8E4M3, 6144, 4096, 64), "gemm_fp8_streamed");
  EXPECT_EQ(name(DType::kF8E4M3, 4096, 4096, 64), "gemm_fp8_row_sums_cublaslt");
  EXPECT_EQ(name(DType::kF8E4M3, 6144, 4096, 128), "gemm_fp8_row_sums_cublaslt");
  EXPECT_EQ(name(DType::kF8E4M3, 6144, 4096, 129), "gemm_fp8_row_cublaslt");
}

TEST(CudaGemmChoice, NamesAreUniqueAndOfTheirType) {
  const auto kernels = cuda_gemm_kernels();
  for (size_t i = 0; i < kernels.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_STRNE(kernels[i].name, kernels[j].name);
    EXPECT_THAT(std::string(kernels[i].takes), testing::Not(IsEmpty()));
    EXPECT_TRUE(kernels[i].needs_algorithm || kernels[i].rows_max <= kStreamedRowsMax)
        << kernels[i].name;
  }
}

TEST(Accumulators, FitTheirLimitInWholeBlocksOfRows) {
  for (const int64_t N : {1, 16, 17, 6144, 57344, 128256, 10000000}) {
    const int64_t rows = accumulator_rows_max(N);
    EXPECT_EQ(rows % kGemmPadding, 0) << N;
    EXPECT_GE(rows, kGemmPadding) << N;
    const auto row_bytes = static_cast<size_t>((N + 15) / 16 * 16) * 4;
    if (rows > kGemmPadding) {
      EXPECT_LE(static_cast<size_t>(rows) * row_bytes, kAccumulatorBytesMax) << N;
      EXPECT_GT(static_cast<size_t>(rows + kGemmPadding) * row_bytes, kAccumulatorBytesMax) << N;
    }
    for (const CudaGemmKernel& kernel : cuda_gemm_kernels()) {
      const CudaGemmProblem problem = {.dtype = kernel.dtype, .N = N, .K = 64};
      const size_t most = kernel.workspace_bytes(problem, 1000000);
      EXPECT_LE(kernel.workspace_bytes(problem, 1), most);
      EXPECT_LE(most, static_cast<size_t>(rows) * row_bytes);
    }
  }
}

TEST(GemmFloor, IsBytesForFewRowsAndOperationsForMany) {
  const CudaGemmProblem problem = {
      .dtype = DType::kF8E4M3, .y_dtype = DType::kF16, .N = 6144, .K = 4096};
  const GpuRates rates;
  EXPECT_NEAR(gemm_floor_microseconds(rates, problem, 1), 6144.0 * 4096 / 4.66e6, 0.1);
  EXPECT_NEAR(gemm_floor_microseconds(rates, problem, 2048), 2.0 * 2048 * 6144 * 4096 / 1733e6,
              0.01);
  EXPECT_EQ(llama_gemm_shapes().size(), 8U);
}

}  // namespace
}  // namespace halley::cuda
