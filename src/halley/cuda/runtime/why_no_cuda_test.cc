#include <string>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_device.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(WhyNoCudaTest, SaysWhatIsMissingAndStopsThere) {
  const std::string rejection = why_no_cuda();
  if (rejection.empty()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(rejection, AllOf(StartsWith("CUDA: expected "), HasSubstr(", got "),
                               EndsWith("run on the CPU.")));
  for (const auto& call : {+[] { list_cuda_devices(); }, +[] { use_cuda_device(0); }}) {
    try {
      call();
      ADD_FAILURE() << "expected an error";
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.what(), rejection);
    }
  }
}

TEST(WhyNoCudaTest, NamesAGpuThatTheBuildHasNoCodeFor) {
  EXPECT_EQ(why_not_this_gpu({.compute_major = 9, .compute_minor = 0}), "");
  EXPECT_EQ(why_not_this_gpu(
                {.ordinal = 1, .name = "NVIDIA L40S", .compute_major = 8, .compute_minor = 9}),
            "GPU 1 (NVIDIA L40S): expected compute capability 9.0 (H100, H200), got 8.9. Choose "
            "another GPU, or run on the CPU.");
}

TEST(CudaVersionsTest, AreThoseOfTheBuildAndOfTheDriver) {
  const CudaVersions versions = cuda_versions();
  EXPECT_EQ(versions.runtime, str(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10));
  const bool has_driver = why_no_cuda().find("expected an NVIDIA driver") == std::string::npos;
  EXPECT_EQ(versions.driver != "0.0", has_driver);
}

}  // namespace
}  // namespace halley
