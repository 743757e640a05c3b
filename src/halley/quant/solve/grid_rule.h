// Chooses the quantization grid (scale and zero point) of a group of weights, and rounds to it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/quant/base/quantized_weight.h"

namespace halley {

/// The grids of a weight.
struct GridOptions {
  int bits = 4;
  int64_t group_size = 128;  // K or more: per-channel
  bool is_symmetric = false;
};

/// One grid: w = scale * (code - zero).
struct Grid {
  float scale = 1;
  uint8_t zero = 0;
  uint8_t factor = 0;  // second-level scale of make_progressive_rule()
};

/// Chooses the grid of a group from its weights. Immutable; any thread. Requires finite weights.
class GridRule {
 public:
  virtual ~GridRule() = default;
  /// `weights`: those of group `group` of output n, at least one. A group of zeros gets a grid that
  /// dequantizes to zeros.
  virtual Grid fit(int64_t n, int64_t group, std::span<const float> weights) const = 0;
  /// Quantizes w: the nearest code, ties to even, within 0 ... 2^bits - 1 (and within the range
  /// that a second level allows).
  virtual uint8_t round(const Grid& grid, float w) const = 0;
  /// An empty weight [N, K] of this rule's kind, its arrays sized, for set_grid() and codes.
  virtual QuantizedWeight start(int64_t N, int64_t K) const = 0;
};

/// Stores the grid of (n, group) in a weight that start() made.
void set_grid(QuantizedWeight& weight, int64_t n, int64_t group, const Grid& grid);

/// Min-max rule. Asymmetric: from min(w, 0) to max(w, 0) in 2^bits - 1 steps, the zero point
/// rounded to an integer, as GPTQ and AWQ do. Symmetric: scale = 2 max|w| / (2^bits - 1), zero
/// point 2^(bits-1). Scales are rounded to f16 before weights are rounded. `clip` [N, num_groups]
/// shrinks the range of each group by a ratio in (0, 1], `num_groups` per output; empty: no
/// clipping.
std::unique_ptr<GridRule> make_minmax_rule(const GridOptions& options, std::vector<float> clip,
                                           int64_t num_groups = 1);

/// QoQ's progressive group quantization in groups of `group_size`: per-channel scale
/// s1[n] = f16(max|w[n]| / 119) from `weight` [N, K], which gives s8 values in [-119, 119]; these
/// to u4 with an integer second-level scale (factor) and zero point: of the two factors next to
/// range / 15 the one with the least squared error. `clip` as above.
std::unique_ptr<GridRule> make_progressive_rule(ConstMatrix weight, int64_t group_size,
                                                std::vector<float> clip);

/// Round to nearest (RTN): every weight to the nearest code of its group's grid. w [N, K] f32.
QuantizedWeight round_to_nearest(ExecContext& context, ConstMatrix w, const GridRule& rule);

}  // namespace halley
