// The library without a GPU: rejected calls and their messages.
#include "halley/cuda/library/halley_kernels.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
