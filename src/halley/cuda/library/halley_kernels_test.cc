// The library without a GPU: rejected calls and their messages.
#include "halley/cuda/library/halley_kernels.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/cuda/library/byte_weights.h"
#include "halley/cuda/runtime/cuda_device.h"

namespace {

using ::testing::HasSubstr;

TEST(HalleyKernels, HasTheHeadersVersion) {
  EXPECT_EQ(halley_kernels_version(), HALLEY_KERNELS_VERSION);
}

TEST(HalleyKernels, SaysWhichPointerIsMissing) {
  EXPECT_EQ(halley_kernels_open(0, 0, nullptr), HALLEY_KERNELS_WRONG_ARGUMENT);
  EXPECT_THAT(halley_kernels_last_error(), HasSubstr("context: expected a pointer, got null"));
  EXPECT_EQ(halley_kernels_pack(nullptr, nullptr, nullptr), HALLEY_KERNELS_WRONG_ARGUMENT);
  EXPECT_EQ(halley_kernels_choose(nullptr, "mma"), HALLEY_KERNELS_WRONG_ARGUMENT);
  EXPECT_EQ(halley_kernels_gemm(nullptr, nullptr, nullptr, {}, nullptr),
            HALLEY_KERNELS_WRONG_ARGUMENT);
  EXPECT_EQ(halley_kernels_block_gemm(nullptr, nullptr, nullptr, {}, nullptr),
            HALLEY_KERNELS_WRONG_ARGUMENT);
  EXPECT_EQ(halley_kernels_quantize_rows(nullptr, {}, {}, nullptr, nullptr, nullptr),
            HALLEY_KERNELS_WRONG_ARGUMENT);
  EXPECT_EQ(halley_kernels_quantize(nullptr, nullptr, {}, nullptr, nullptr),
            HALLEY_KERNELS_WRONG_ARGUMENT);
  EXPECT_EQ(halley_kernels_allow_pdl(nullptr, 1), HALLEY_KERNELS_WRONG_ARGUMENT);
  EXPECT_EQ(halley_kernels_join_experts(nullptr, nullptr, 0, nullptr, 0, nullptr),
            HALLEY_KERNELS_WRONG_ARGUMENT);
  EXPECT_EQ(halley_kernels_grouped_gemm(nullptr, nullptr, nullptr, nullptr, {}, nullptr),
            HALLEY_KERNELS_WRONG_ARGUMENT);
}

TEST(HalleyKernels, SumsOfRowsFitIntoTheWorkspace) {
  constexpr int64_t kN = 1000, kK = 4096;
  constexpr size_t kRowBytes = 1008 * 4 + kK, kOfTwoArrays = 512;
  const auto rows_in = [](size_t num_bytes) {
    return halley::cuda::library_rows_at_once(num_bytes, kN, kK);
  };
  EXPECT_EQ(rows_in(0), 0);
  EXPECT_EQ(rows_in(16 * kRowBytes + kOfTwoArrays - 1), 0);
  EXPECT_EQ(rows_in(16 * kRowBytes + kOfTwoArrays), 16);
  EXPECT_EQ(rows_in(47 * kRowBytes + kOfTwoArrays), 32);
}

TEST(HalleyKernels, OtherNamesOfGemmRejectTheSame) {
  for (const auto call :
       {+[] { return halley_kernels_product(nullptr, {}, {}, {}, nullptr); },
        +[] { return halley_kernels_block_product(nullptr, {}, {}, {}, nullptr); }}) {
    EXPECT_EQ(call(), HALLEY_KERNELS_WRONG_ARGUMENT);
    EXPECT_THAT(halley_kernels_last_error(), HasSubstr("context: expected a pointer, got null"));
  }
}

TEST(HalleyKernels, NullIsFreed) {
  halley_kernels_close(nullptr);
  halley_kernels_free(nullptr);
  halley_kernels_free_experts(nullptr);
  EXPECT_EQ(halley_kernels_weight_bytes(nullptr), 0u);
  EXPECT_EQ(halley_kernels_needs_sums(nullptr), 0);
}

TEST(HalleyKernels, SaysWhyThereIsNoGpu) {
  const std::string why = halley::why_no_cuda();
  if (why.empty()) GTEST_SKIP() << "this machine has a GPU";
  halley_kernels_context* context = nullptr;
  EXPECT_EQ(halley_kernels_open(0, 0, &context), HALLEY_KERNELS_DEVICE);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(halley_kernels_last_error(), why);
}

}  // namespace
