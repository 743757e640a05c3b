#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

class TimeGemm : public HopperTest {
 protected:
  CublasLtGemm lt_{context_, {}};
};

TEST_F(TimeGemm, TimesAllKernelsOfAProblem) {
  const TimeGemmOptions options = {.shapes = {{256, 512}}, .rows = {1, 64}};
  for (const char* problem : {"f16", "fp8_tensor", "fp8_row", "s8"}) {
    SCOPED_TRACE(problem);
    int num_chosen = 0, num_early = 0;
    for (const GemmTime& time : time_gemm(context_, lt_, problem, options)) {
      EXPECT_EQ(time.problem, problem);
      EXPECT_GT(time.time.microseconds, 0) << time.kernel;
      EXPECT_GT(time.floor_microseconds, 0) << time.kernel;
      num_chosen += time.is_chosen ? 1 : 0;
      // Kernels of ours start early.
      if (time.kernel.find("_streamed") == std::string::npos) continue;
      EXPECT_GT(time.time.early_microseconds.value_or(0), 0) << time.kernel;
      ++num_early;
    }
    EXPECT_EQ(num_chosen, 2);
    EXPECT_EQ(num_early, 2);
  }
}

TEST_F(TimeGemm, FillsWithAPatternAgainAndAgain) {
  const DeviceBuffer buffer(1000, "a test");
  const std::vector<uint8_t> pattern = {1, 2, 3};
  fill_pattern(buffer, pattern);
  std::vector<uint8_t> bytes(buffer.num_bytes());
  check_cuda(cudaMemcpy(bytes.data(), buffer.data(), bytes.size(), cudaMemcpyDeviceToHost),
             "copy to the host");
  for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], pattern[i % 3]) << i;
}

}  // namespace
}  // namespace halley::cuda
