#include <iostream>

#include <gtest/gtest.h>

#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

class TimeMixedGemm : public HopperTest {
 protected:
  CublasLtGemm lt_{context_, {}};
};

/// All tiles of two layers of Llama-3: what the constants of mixed_plan.cc are judged by.
TEST_F(TimeMixedGemm, ListsAllTilings) {
  const auto times =
      time_mixed_gemm(context_, lt_,
                      {.shapes = {{4096, 4096}, {8192, 28672}},
                       .rows = {1, 16, 64, 256},
                       .kinds = {MixedKind::kU4S8, MixedKind::kU4GroupS8, MixedKind::kU4F16},
                       .has_all_tiles = true,
                       .has_early_starts = true});
  for (const MixedGemmTime& time : times) {
    EXPECT_GT(time.microseconds, 0) << time.problem << " " << time.plan;
    std::cout << (time.is_chosen ? "time * " : "time   ") << time.problem << " " << time.N << "x"
              << time.K << " M " << time.M << ": " << time.microseconds << " us, floor "
              << time.floor_microseconds << ", ratio "
              << time.microseconds / time.floor_microseconds << ", "
              << (time.starts_early ? "early, " : "") << time.plan << "\n";
  }
}

}  // namespace
}  // namespace halley::cuda
