#include "halley/kernels/gemm/kernel_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

const GemmProblem kF16Problem = {.w_layout = PackedLayout::kF16Panel, .N = 64, .K = 32};

GemmProblem quantized_problem(PackedLayout layout, ActivationQuant activation) {
  GemmProblem problem = {.w_layout = layout, .N = 64, .K = 256};
  problem.group_size = 128;
  problem.activation = activation;
  return problem;
}

TEST(KernelChoice, TakesTheFirstThatRunsAndSaysWhyNotOthers) {
  const GemmProblem problem = quantized_problem(PackedLayout::kU4Quad, ActivationQuant::kNone);
  const KernelChoice choice = choose_gemm_kernel(problem);
  size_t num_before = 0;
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    if (&kernel == choice.kernel) break;
    if (kernel.w_layout != problem.w_layout) continue;
    const std::string reason = kernel.why_not(problem);
    EXPECT_NE(reason, "") << kernel.name;
    EXPECT_EQ(choice.rejections.at(num_before++), std::string(kernel.name) + ": " + reason);
  }
  EXPECT_EQ(choice.rejections.size(), num_before);
}

TEST(KernelChoice, EveryQuadLayoutHasAKernelForItsActivations) {
  using enum ActivationQuant;
  for (const PackedLayout layout :
       {PackedLayout::kU2Quad, PackedLayout::kU3Quad, PackedLayout::kU4Quad, PackedLayout::kU8Quad,
        PackedLayout::kF8E4M3Quad}) {
    EXPECT_NE(choose_gemm_kernel(quantized_problem(layout, kNone)).kernel, nullptr);
  }
  for (const ActivationQuant activation : {kS8Token, kS8Static}) {
    for (const PackedLayout layout : {PackedLayout::kU4Quad, PackedLayout::kU8Quad}) {
      EXPECT_NE(choose_gemm_kernel(quantized_problem(layout, activation)).kernel, nullptr);
    }
  }
  const GemmProblem blocks = quantized_problem(PackedLayout::kU4Quad, kS4S8Block128);
  EXPECT_NE(choose_gemm_kernel(blocks).kernel, nullptr);
  for (const ActivationQuant activation : {kE4m3Token, kE4m3Group128, kE4m3Static}) {
    const GemmProblem problem = quantized_problem(PackedLayout::kF8E4M3Quad, activation);
    EXPECT_NE(choose_gemm_kernel(problem).kernel, nullptr);
  }
}

TEST(KernelChoice, ForcesAKernelForItsLayoutAlone) {
  KernelDemands demands;
  demands.forced = "gemm_w4a32_hwy";
  const GemmProblem problem = quantized_problem(PackedLayout::kU4Quad, ActivationQuant::kNone);
  EXPECT_STREQ(choose_gemm_kernel(problem, demands).kernel->name, "gemm_w4a32_hwy");
  EXPECT_STREQ(choose_gemm_kernel(kF16Problem, demands).kernel->name, "gemm_f16_hwy");
}

TEST(KernelChoice, RejectsAForcedKernelThatCannotRun) {
  KernelDemands demands;
  demands.forced = "gemm_w4a32_hwy";
  const GemmProblem problem = quantized_problem(PackedLayout::kU4Quad, ActivationQuant::kE4m3Token);
  EXPECT_THAT([&] { choose_gemm_kernel(problem, demands); },
              ThrowsMessage<InputError>(AllOf(
                  StartsWith("kernel gemm_w4a32_hwy: expected it to run a u4_quad weight [64, "
                             "256] in groups of 128, activations e4m3_token, got a rejection: "),
                  HasSubstr(". Force another, or none."))));
}

TEST(KernelChoice, RejectsAChoiceThatIsNotAmongTheRequired) {
  KernelDemands demands;
  demands.required = {"gemm_w4a32_hwy", "gemm_f32_hwy"};
  EXPECT_THAT(
      [&] { choose_gemm_kernel(kF16Problem, demands); },
      ThrowsMessage<InputError>(StartsWith(
          "kernel: expected one of [gemm_w4a32_hwy, gemm_f32_hwy] to run a f16_panel weight "
          "[64, 32], got gemm_f16_hwy")));
}

TEST(KernelChoice, RejectsNamesThatAreNotInTheTable) {
  KernelDemands demands;
  demands.forced = "gemm\n";
  EXPECT_THAT([&] { check_kernel_names(demands); },
              ThrowsMessage<InputError>(AllOf(StartsWith("kernel: expected one of gemm_bf16_amx, "),
                                              HasSubstr("got \"gemm\\n\"."))));
  EXPECT_THAT([] { check_kernel_names({.forced = {}, .required = {"x"}}); },
              ThrowsMessage<InputError>(HasSubstr("got \"x\".")));
}

TEST(KernelChoice, ListsEveryReasonWhereNoneRuns) {
  const GemmProblem problem = quantized_problem(PackedLayout::kU2Quad, ActivationQuant::kE4m3Token);
  EXPECT_THAT([&] { choose_gemm_kernel(problem); },
              ThrowsMessage<UnsupportedError>(AllOf(
                  StartsWith("gemm: expected a kernel for a u2_quad weight [64, 256] in groups "
                             "of 128, activations e4m3_token, got none ("),
                  HasSubstr("gemm_w2a32_hwy: "))));
}

}  // namespace
}  // namespace halley
