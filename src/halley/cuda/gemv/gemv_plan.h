// How a product of a few rows is shared out among blocks.
#pragma once

#include <cstdint>
#include <ostream>

#include "halley/cuda/gemv/gemv_weight.h"

namespace halley::cuda {

struct GemvPlan {
  /// Tiles of 16 outputs of a block: 1, 2 or 4. Its eight warps take the inputs in turn.
  int tiles = 1;
};

std::ostream& operator<<(std::ostream& out, const GemvPlan& plan);

/// The number of rows plays no part: it changes no sum.
GemvPlan plan_gemv(const GemvShape& shape, int num_sms);

/// Whether a kernel is compiled for it.
bool has_gemv_kernel(const GemvShape& shape, const GemvPlan& plan);

}  // namespace halley::cuda
