#include <iostream>
#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "halley/cuda/nested_gemm/time_nested_gemm.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

class TimeNestedGemm : public HopperTest {
 protected:
  CublasLtGemm lt_{context_, {}};
};

/// All plans of the layers of Llama-3, then the lines of the fastest for
/// cuda/hopper_tile/tuned_h200.json.
TEST_F(TimeNestedGemm, ListsAllPlansOfAllLayers) {
  std::map<std::tuple<int64_t, int64_t, int64_t>, NestedGemmTime> best;
  for (const NestedGemmTime& time : time_nested_gemm(context_, lt_, {.has_all_tiles = true})) {
    EXPECT_GT(time.microseconds, 0) << time.plan;
    std::cout << (time.is_chosen ? "time * " : "time   ") << time.N << "x" << time.K << " M "
              << time.M << ": " << time.microseconds << " us, " << time.plan << "\n";
    if (time.tuned.empty()) continue;
    const auto [place, is_new] = best.try_emplace({time.N, time.K, time.M}, time);
    if (!is_new && time.microseconds < place->second.microseconds) place->second = time;
  }
  for (const auto& [shape, time] : best) std::cout << "  " << time.tuned << ",\n";
}

}  // namespace
}  // namespace halley::cuda
