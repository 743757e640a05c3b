#include <iostream>

#include <gtest/gtest.h>

#include "halley/cuda/nested_gemm/time_nested_gemm.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

class TimeNestedGemm : public HopperTest {
 protected:
  CublasLtGemm lt_{context_, {}};
};

/// All tiles of the layers of Llama-3: what the constants of nested_plan.cc are judged by.
TEST_F(TimeNestedGemm, ListsAllTilesOfAllLayers) {
  for (const NestedGemmTime& time : time_nested_gemm(context_, lt_, {.has_all_tiles = true})) {
    EXPECT_GT(time.microseconds, 0) << time.plan;
    std::cout << (time.is_chosen ? "time * " : "time   ") << time.N << "x" << time.K << " M "
              << time.M << ": " << time.microseconds << " us, " << time.plan << "\n";
  }
}

}  // namespace
}  // namespace halley::cuda
