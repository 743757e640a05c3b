#include "halley/cuda/gemv/gemv_plan.h"

#include <algorithm>

namespace halley::cuda {

std::ostream& operator<<(std::ostream& out, const GemvPlan& plan) {
  return out << plan.tiles * kGemvTileOutputs << " outputs a block";
}

GemvPlan plan_gemv(const GemvShape& shape, int num_multiprocessors) {
  // With more outputs a block x is read less often, which counts the more the fewer bits weights
  // have; but three blocks a multiprocessor, two of which run at once, share the bandwidth better.
  constexpr int kBlocksMin = 5;  // in halves
  GemvPlan plan;
  while (has_gemv_kernel(shape, {2 * plan.tiles}) &&
         shape.num_tiles() * 2 >= int64_t{kBlocksMin} * num_multiprocessors * 2 * plan.tiles) {
    plan.tiles *= 2;
  }
  return plan;
}

bool has_gemv_kernel(const GemvShape& shape, const GemvPlan& plan) {
  return plan.tiles == 1 || plan.tiles == 2 || (plan.tiles == 4 && shape.bits < 8);
}

}  // namespace halley::cuda
