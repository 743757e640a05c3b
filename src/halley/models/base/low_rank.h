// Low-rank additions to the linear layers of a model, as LoRA adapters are: y += B (A x).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/quant/base/linear_op.h"
#include "halley/quant/base/linear_spec.h"

namespace halley {

/// The addition to consecutive outputs of one linear layer. `b` holds the adapter's factor too.
struct LowRankPart {
  int64_t first_output = 0;
  LinearOp a;  // [rank, K] f32
  LinearOp b;  // [N, rank] f32
};

/// Additions to linear layers, each by the name of the layer's first part (LinearSpec). One step at
/// a time uses it.
struct Adapter {
  std::string name;
  /// Tells its cached keys and values from those of all others: not in use before, ever.
  uint64_t id = 0;
  int64_t rank_max = 0;
  size_t num_bytes = 0;
  std::map<std::string, std::vector<LowRankPart>, std::less<>> layers;
};

struct DecoderStep;

/// Adds to y, the layer's outputs for the rows of the step, what the adapters of its sequences say.
/// Shapes    x [M, K], y [M, N] f32
void add_low_rank(const DecoderStep& step, const LinearSpec& spec, ConstMatrix x, Matrix y);

}  // namespace halley
