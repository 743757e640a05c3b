#include "halley/cli/gemm_problems.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/gemv/time_gemv.h"
#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"
#include "halley/cuda/nested_gemm/time_nested_gemm.h"
#include "halley/cuda/w4ax_gemm/time_w4ax_gemm.h"

namespace halley::cli {
namespace {

using cuda::CublasLtGemm;
using cuda::GemmTime;
using cuda::TimeGemmOptions;
using Times = std::vector<GemmTime>;

Times time_plain(const CudaContext& context, CublasLtGemm& lt, std::string_view name,
                 const TimeGemmOptions& options) {
  return cuda::time_gemm(context, lt, name, options);
}

template <cuda::MixedKind kKind>
Times time_mixed(const CudaContext& context, CublasLtGemm&, std::string_view,
                 const TimeGemmOptions& options) {
  return cuda::time_mixed_gemm(context, {.gemm = options, .kinds = {kKind}});
}

Times time_w4ax(const CudaContext& context, CublasLtGemm&, std::string_view,
                const TimeGemmOptions& options) {
  return cuda::time_w4ax_gemm(context, options);
}

Times time_nested(const CudaContext& context, CublasLtGemm&, std::string_view,
                  const TimeGemmOptions& options) {
  return cuda::time_nested_gemm(context, options);
}

Times time_nested_low(const CudaContext& context, CublasLtGemm& lt, std::string_view,
                      const TimeGemmOptions& options) {
  return cuda::time_nested_fp8(context, lt, options);
}

Times time_few_rows(const CudaContext& context, CublasLtGemm&, std::string_view name,
                    const TimeGemmOptions& options) {
  const auto problems = cuda::timed_gemv_problems();
  const auto found = std::find_if(problems.begin(), problems.end(),
                                  [&](const auto& problem) { return problem.name == name; });
  HALLEY_CHECK(found != problems.end(), name);
  return cuda::time_gemv(context, *found, options);
}

constexpr std::string_view kOfNumbers[] = {"f16"};
constexpr std::string_view kOfCodes[] = {"f16", "fp8_tensor", "fp8_row", "s8"};

constexpr GemmBenchProblem kProblems[] = {
    {"f16", "f16", time_plain, kOfNumbers, false},
    {"fp8_tensor", "e4m3, one scale each", time_plain, kOfCodes, false},
    {"fp8_row", "e4m3, a scale for each row and output", time_plain, kOfCodes, false},
    {"s8", "s8, a scale for each row and output", time_plain, kOfCodes, false},
    {"u4_s8", "W4A8, a scale for each output", time_mixed<cuda::MixedKind::kU4S8>, kOfCodes},
    {"u4_group_s8", "W4A8 in groups of 128", time_mixed<cuda::MixedKind::kU4GroupS8>, kOfCodes},
    {"w4ax", "W4Ax, four of five blocks of activations in 4 bits", time_w4ax, kOfCodes},
    {"u4_f16", "W4A16 in groups of 128", time_mixed<cuda::MixedKind::kU4F16>, kOfNumbers},
    {"u4_bf16", "the same in bf16", time_mixed<cuda::MixedKind::kU4Bf16>, kOfNumbers},
    {"u8_f16", "W8A16 in groups of 128", time_mixed<cuda::MixedKind::kU8F16>, kOfNumbers},
    {"u8_bf16", "the same in bf16", time_mixed<cuda::MixedKind::kU8Bf16>, kOfNumbers},
    {"nested_f16", "f16 in two planes", time_nested, kOfNumbers},
    {"nested_fp8", "the upper one of two planes in e4m3", time_nested_low, kOfCodes},
    {"u3_f16", "W3A16 in groups of 128, few rows", time_few_rows, kOfNumbers},
    {"u2_f16", "W2A16, the same", time_few_rows, kOfNumbers},
    {"u1_f16", "W1A16, the same", time_few_rows, kOfNumbers},
    {"u2_s8", "W2A8, a scale for each output, few rows", time_few_rows, kOfCodes},
    {"u1_s8", "W1A8, the same", time_few_rows, kOfCodes},
};

constexpr ProblemRatio kRatios[] = {
    {"u4_group_s8", "u4_s8"},      {"w4ax", "u4_s8"},
    {"u4_f16", "u4_s8"},           {"u4_bf16", "u4_f16"},
    {"u4_s8", "fp8_tensor", true}, {"u4_f16", "f16", true},
    {"u8_bf16", "u8_f16"},         {"u8_f16", "f16", true},
    {"nested_f16", "f16", true},   {"nested_fp8", "fp8_tensor", true},
};

}  // namespace

std::span<const GemmBenchProblem> gemm_bench_problems() { return kProblems; }

std::span<const ProblemRatio> gemm_bench_ratios() { return kRatios; }

}  // namespace halley::cli
