#include "halley/cuda/gemv/gemv_plan.h"

#include <algorithm>

namespace halley::cuda {

std::ostream& operator<<(std::ostream& out, const GemvPlan& plan) {
  return out << plan.tiles * kGemvTileOutputs << " outputs a block";
}

GemvPlan plan_gemv(const GemvShape& shape, int num_sms) {
  // With more outputs a block x is read less often and more is multiplied for each of its words;
  // but every SM should have blocks (seen on an H200: 1.9 of 32 outputs are better than
  // 3.9 of 16, 1.9 of 16 better than 1 of 32).
  constexpr int kBlocksMin = 3;  // in halves
  GemvPlan plan;
  while (has_gemv_kernel(shape, {2 * plan.tiles}) &&
         shape.num_tiles() * 2 >= int64_t{kBlocksMin} * num_sms * 2 * plan.tiles) {
    plan.tiles *= 2;
  }
  return plan;
}

bool has_gemv_kernel(const GemvShape& shape, const GemvPlan& plan) {
  return plan.tiles == 1 || plan.tiles == 2 || (plan.tiles == 4 && shape.bits < 8);
}

}  // namespace halley::cuda
