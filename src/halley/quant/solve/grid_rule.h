// How the grid of a group of weights is chosen, and rounding to it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/quant/base/quantized_weight.h"

namespace halley {

/// The grids that a weight shall have.
struct GridOptions {
  int bits = 4;
  int64_t group_size = 128;  // K or more: one grid for each output
  bool is_symmetric = false;
};

/// One grid: w = scale * (code - zero).
struct Grid {
  float scale = 1;
  uint8_t zero = 0;
  uint8_t factor = 0;  // of a rule with two levels
};

/// Chooses the grid of one output's group from its weights. Stateless but for what it was made
/// with; any thread. Weights are finite; of others the codes mean nothing.
class GridRule {
 public:
  virtual ~GridRule() = default;
  /// `weights`: the group's inputs of output n, at least one. A group of zeros gets a grid that
  /// decodes to zeros.
  virtual Grid fit(int64_t n, int64_t group, std::span<const float> weights) const = 0;
  /// The code of w on the grid: nearest, ties to even, within 0 ... 2^bits - 1 (and what a second
  /// level allows).
  virtual uint8_t round(const Grid& grid, float w) const = 0;
  /// An empty weight [N, K] of this rule's kind, its arrays sized, for set_grid() and codes.
  virtual QuantizedWeight start(int64_t N, int64_t K) const = 0;
};

/// Stores the grid of (n, group) in a weight that start() made.
void set_grid(QuantizedWeight& weight, int64_t n, int64_t group, const Grid& grid);

/// Asymmetric: from min(w, 0) to max(w, 0) in 2^bits - 1 steps, the zero rounded to an integer, as
/// GPTQ and AWQ do. Symmetric: scale = 2 max|w| / (2^bits - 1), zero 2^(bits-1). Scales are rounded
/// to f16 before anything is rounded to the grid. `clip` [N, num_groups] shrinks the range of each
/// group by a ratio in (0, 1], `num_groups` being those of an output; empty: no clipping.
std::unique_ptr<GridRule> make_minmax_rule(const GridOptions& options, std::vector<float> clip,
                                           int64_t num_groups = 1);

/// QoQ's two levels for groups of `group_size` (METHODS, "Progressive group quantization"):
/// channel scale s1[n] = f16(max|w[n]| / 119) from `weight` [N, K], s8 values in [-119, 119], then
/// u4 with an integer factor and zero: of the two factors next to the range's 15th part the one
/// with the least squared error. `clip` as above.
std::unique_ptr<GridRule> make_progressive_rule(ConstMatrix weight, int64_t group_size,
                                                std::vector<float> clip);

/// Every weight to the nearest code of its group's grid. w [N, K] f32.
QuantizedWeight round_to_nearest(ExecContext& context, ConstMatrix w, const GridRule& rule);

}  // namespace halley
