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

Times time_small_m(const CudaContext& context, CublasLtGemm&, std::string_view name,
                   const TimeGemmOptions& options) {
  const auto problems = cuda::timed_gemv_problems();
  const auto found = std::find_if(problems.begin(), problems.end(),
                                  [&](const auto& problem) { return problem.name == name; });
  HALLEY_CHECK(found != problems.end(), name);
  return cuda::time_gemv(context, *found, options);
}

constexpr std::string_view kFloatPeers[] = {"f16"};
constexpr std::string_view kQuantizedPeers[] = {"f16", "fp8_tensor", "fp8_row", "s8"};

constexpr GemmBenchProblem kProblems[] = {
    {"f16", "f16", time_plain, kFloatPeers, false},
    {"fp8_tensor", "FP8 e4m3, per-tensor scales", time_plain, kQuantizedPeers, false},
    {"fp8_row", "FP8 e4m3, per-token and per-channel scales", time_plain, kQuantizedPeers, false},
    {"s8", "INT8, per-token and per-channel scales", time_plain, kQuantizedPeers, false},
    {"u4_s8", "W4A8, per-channel scales", time_mixed<cuda::MixedKind::kU4S8>, kQuantizedPeers},
    {"u4_group_s8", "W4A8, groups of 128", time_mixed<cuda::MixedKind::kU4GroupS8>,
     kQuantizedPeers},
    {"w4ax", "W4Ax, four of five k-blocks of activations in 4 bits", time_w4ax, kQuantizedPeers},
    {"u4_f16", "W4A16, groups of 128", time_mixed<cuda::MixedKind::kU4F16>, kFloatPeers},
    {"u4_bf16", "W4A16 in bf16, groups of 128", time_mixed<cuda::MixedKind::kU4Bf16>, kFloatPeers},
    {"u8_f16", "W8A16, groups of 128", time_mixed<cuda::MixedKind::kU8F16>, kFloatPeers},
    {"u8_bf16", "W8A16 in bf16, groups of 128", time_mixed<cuda::MixedKind::kU8Bf16>, kFloatPeers},
    {"nested_f16", "f16 weights in two planes of 8 bits", time_nested, kFloatPeers},
    {"nested_fp8", "the upper of two planes, in e4m3", time_nested_low, kQuantizedPeers},
    {"u3_f16", "W3A16, groups of 128, small M", time_small_m, kFloatPeers},
    {"u2_f16", "W2A16, groups of 128, small M", time_small_m, kFloatPeers},
    {"u1_f16", "W1A16, groups of 128, small M", time_small_m, kFloatPeers},
    {"u2_s8", "W2A8, per-channel scales, small M", time_small_m, kQuantizedPeers},
    {"u1_s8", "W1A8, per-channel scales, small M", time_small_m, kQuantizedPeers},
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
