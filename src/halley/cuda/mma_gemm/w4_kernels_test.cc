#include "halley/cuda/mma_gemm/w4_kernels.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cuda {
namespace {

using ::testing::HasSubstr;

CudaDeviceInfo gpu(int major, int minor) {
  return {.compute_major = major, .compute_minor = minor};
}

std::string chosen(int major, int minor) {
  const W4KernelRow* row = find_w4_kernels(gpu(major, minor));
  return row == nullptr ? "none" : row->name;
}

TEST(W4Kernels, AreChosenByCapability) {
  EXPECT_EQ(chosen(7, 5), "none");
  for (const int minor : {0, 6, 7, 9}) EXPECT_EQ(chosen(8, minor), "mma") << minor;
  EXPECT_EQ(chosen(9, 0), "hopper");
  EXPECT_EQ(chosen(10, 0), "none");
  EXPECT_EQ(chosen(12, 0), "none");
}

TEST(W4Kernels, SayWhichCapabilityTheyNeed) {
  EXPECT_EQ(why_no_w4_kernels(gpu(8, 6)), "");
  EXPECT_EQ(why_no_w4_kernels(gpu(7, 5)), "expected compute capability 8.0 to 9.0, got 7.5");
}

TEST(W4Kernels, AreFoundByNameWhereTheyRun) {
  EXPECT_EQ(w4_kernels_named(gpu(9, 0), "mma").kernels, W4Kernels::kMma);
  EXPECT_EQ(w4_kernels_named(gpu(9, 0), "hopper").kernels, W4Kernels::kHopper);
  EXPECT_EQ(w4_kernels_named(gpu(8, 9), "mma").kernels, W4Kernels::kMma);
}

TEST(W4Kernels, AreRejectedByNameWhereTheyDoNotRun) {
  try {
    w4_kernels_named(gpu(8, 0), "hopper");
    FAIL() << "expected an UnsupportedError";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"hopper\": expected compute capability 9.0, got 8.0"));
  }
  try {
    w4_kernels_named(gpu(9, 0), "ampere");
    FAIL() << "expected an InputError";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected hopper or mma, got \"ampere\""));
  }
}

}  // namespace
}  // namespace halley::cuda
