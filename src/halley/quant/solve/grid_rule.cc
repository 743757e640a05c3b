#include "halley/quant/solve/grid_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

// The range of f16 above zero.
constexpr float kSmallestF16 = 0x1p-24f;
constexpr float kLargestF16 = 65504.0f;

// The nearest scale above zero that f16 can represent.
float f16_scale(float scale) {
  return f16_to_f32(f32_to_f16(std::clamp(scale, kSmallestF16, kLargestF16)));
}

// The nearest integer, ties to even, for |value| < 2^22: adding 1.5 * 2^23 leaves no bits below
// one.
float round_small(float value) {
  constexpr float kShift = 0x1.8p23f;
  return (value + kShift) - kShift;
}

// `value` within [low, high], NaN as low.
float within(float value, float low, float high) { return std::min(high, std::max(low, value)); }

// The range of code - zero.
struct CodeRange {
  float low = 0, high = 0;
};

// The code nearest to w.
uint8_t nearest_code(const Grid& grid, const CodeRange& range, float w) {
  const float steps = round_small(within(w / grid.scale, range.low, range.high));
  return static_cast<uint8_t>(static_cast<float>(grid.zero) + steps);
}

// The range of some weights, with zero inside.
struct Span {
  float min = 0, max = 0;
};

Span span_of(std::span<const float> weights) {
  Span span;
  for (const float w : weights) {
    span.min = std::min(span.min, w);
    span.max = std::max(span.max, w);
  }
  return span;
}

// Clipping ratios [N, num_groups], or none.
class Clip {
 public:
  Clip(std::vector<float> ratios, int64_t num_groups)
      : ratios_(std::move(ratios)), num_groups_(num_groups) {
    HALLEY_CHECK(num_groups > 0 && ratios_.size() % static_cast<size_t>(num_groups) == 0,
                 ratios_.size(), num_groups);
  }

  Span of(Span span, int64_t n, int64_t group) const {
    if (ratios_.empty()) return span;
    const float ratio = ratios_[static_cast<size_t>(n * num_groups_ + group)];
    return {span.min * ratio, span.max * ratio};
  }
  void check(const QuantizedWeight& weight) const {
    if (ratios_.empty()) return;
    HALLEY_CHECK(num_groups_ == weight.num_groups(), num_groups_, weight.num_groups());
    HALLEY_CHECK(static_cast<int64_t>(ratios_.size()) == weight.N * num_groups_, ratios_.size(),
                 weight.N, num_groups_);
  }

 private:
  std::vector<float> ratios_;
  int64_t num_groups_;
};

QuantizedWeight empty_weight(int64_t N, int64_t K, const GridOptions& options) {
  HALLEY_CHECK(K > 0, K);
  QuantizedWeight weight;
  weight.N = N;
  weight.K = K;
  weight.bits = options.bits;
  weight.group_size = std::min(options.group_size, K);
  weight.is_symmetric = options.is_symmetric;
  weight.codes.resize(static_cast<size_t>(N * K));
  weight.scales.resize(static_cast<size_t>(N * weight.num_groups()));
  weight.zeros.resize(weight.scales.size());
  return weight;
}

class MinmaxRule final : public GridRule {
 public:
  MinmaxRule(const GridOptions& options, Clip clip)
      : options_(options),
        clip_(std::move(clip)),
        code_max_(static_cast<float>((1 << options.bits) - 1)) {
    HALLEY_CHECK(1 <= options.bits && options.bits <= 8, options.bits);
    HALLEY_CHECK(options.group_size > 0, options.group_size);
  }

  Grid fit(int64_t n, int64_t group, std::span<const float> weights) const override {
    Span span = clip_.of(span_of(weights), n, group);
    if (options_.is_symmetric) {
      span.max = std::max(-span.min, span.max);
      span.min = -span.max;
    }
    // A group of zeros may be given other weights by a solver: its range is that of -1 to 1.
    if (span.min == span.max) span = {-1.0f, 1.0f};
    Grid grid;
    grid.scale = f16_scale((span.max - span.min) / code_max_);
    grid.zero =
        options_.is_symmetric
            ? static_cast<uint8_t>(1 << (options_.bits - 1))
            : static_cast<uint8_t>(round_small(within(-span.min / grid.scale, 0.0f, code_max_)));
    return grid;
  }

  uint8_t round(const Grid& grid, float w) const override {
    const auto zero = static_cast<float>(grid.zero);
    return nearest_code(grid, {-zero, code_max_ - zero}, w);
  }

  QuantizedWeight start(int64_t N, int64_t K) const override {
    QuantizedWeight weight = empty_weight(N, K, options_);
    clip_.check(weight);
    return weight;
  }

 private:
  GridOptions options_;
  Clip clip_;
  float code_max_;
};

// Magnitudes of the first level: with the half step that the second may add they stay within s8.
constexpr float kProtectiveMax = 119.0f;
constexpr float kCodeMax = 15.0f;

class ProgressiveRule final : public GridRule {
 public:
  ProgressiveRule(std::vector<float> channel_scales, int64_t group_size, Clip clip)
      : options_{.bits = 4, .group_size = group_size},
        channel_scales_(std::move(channel_scales)),
        clip_(std::move(clip)) {}

  Grid fit(int64_t n, int64_t group, std::span<const float> weights) const override {
    const float channel_scale = channel_scales_[static_cast<size_t>(n)];
    const Span span = clip_.of(span_of(weights), n, group);
    const auto s8 = [&](float w) {
      return round_small(within(w / channel_scale, -kProtectiveMax, kProtectiveMax));
    };
    const float low = s8(span.min);
    const float step = (s8(span.max) - low) / kCodeMax;
    const Grid small = grid_of(channel_scale, low, std::max(1.0f, std::floor(step)));
    const Grid large = grid_of(channel_scale, low, std::max(1.0f, std::ceil(step)));
    if (small.factor == large.factor) return small;
    return error_of(small, weights) < error_of(large, weights) ? small : large;
  }

  // Limits the code so that the first-level value is s8: solvers may give weights beyond the range
  // of fit().
  uint8_t round(const Grid& grid, float w) const override {
    const int low = -128 / grid.factor, high = 127 / grid.factor;
    const auto zero = static_cast<float>(grid.zero);
    return nearest_code(grid,
                        {std::max(-zero, static_cast<float>(low)),
                         std::min(kCodeMax - zero, static_cast<float>(high))},
                        w);
  }

  QuantizedWeight start(int64_t N, int64_t K) const override {
    HALLEY_CHECK(N == static_cast<int64_t>(channel_scales_.size()), N, channel_scales_.size());
    QuantizedWeight weight = empty_weight(N, K, options_);
    clip_.check(weight);
    weight.channel_scales = channel_scales_;
    weight.factors.resize(weight.scales.size());
    return weight;
  }

 private:
  static Grid grid_of(float channel_scale, float low, float factor) {
    return {.scale = channel_scale * factor,
            .zero = static_cast<uint8_t>(round_small(within(-low / factor, 0.0f, kCodeMax))),
            .factor = static_cast<uint8_t>(factor)};
  }

  double error_of(const Grid& grid, std::span<const float> weights) const {
    double error = 0;
    for (const float w : weights) {
      const int steps = round(grid, w) - int{grid.zero};
      const double difference = double{w} - double{grid.scale} * steps;
      error += difference * difference;
    }
    return error;
  }

  GridOptions options_;
  std::vector<float> channel_scales_;  // [N]
  Clip clip_;
};

}  // namespace

void set_grid(QuantizedWeight& weight, int64_t n, int64_t group, const Grid& grid) {
  const auto index = static_cast<size_t>(n * weight.num_groups() + group);
  weight.scales[index] = grid.scale;
  weight.zeros[index] = grid.zero;
  if (!weight.factors.empty()) weight.factors[index] = grid.factor;
}

std::unique_ptr<GridRule> make_minmax_rule(const GridOptions& options, std::vector<float> clip,
                                           int64_t num_groups) {
  return std::make_unique<MinmaxRule>(options, Clip(std::move(clip), num_groups));
}

std::unique_ptr<GridRule> make_progressive_rule(ConstMatrix weight, int64_t group_size,
                                                std::vector<float> clip) {
  HALLEY_CHECK(group_size > 0, group_size);
  std::vector<float> channel_scales;
  for (int64_t n = 0; n < weight.num_rows; ++n) {
    const Span span = span_of({weight.row<float>(n), static_cast<size_t>(weight.num_cols)});
    const float abs_max = std::max(-span.min, span.max);
    channel_scales.push_back(abs_max == 0.0f ? 1.0f : f16_scale(abs_max / kProtectiveMax));
  }
  const int64_t num_groups = std::max<int64_t>(1, ceil_div(weight.num_cols, group_size));
  return std::make_unique<ProgressiveRule>(std::move(channel_scales), group_size,
                                           Clip(std::move(clip), num_groups));
}

QuantizedWeight round_to_nearest(ExecContext& context, ConstMatrix w, const GridRule& rule) {
  QuantizedWeight weight = rule.start(w.num_rows, w.num_cols);
  context.pool.run(weight.N, [&](int64_t n, int) {
    const std::span<const float> row(w.row<float>(n), static_cast<size_t>(weight.K));
    for (int64_t group = 0; group < weight.num_groups(); ++group) {
      const int64_t begin = group * weight.group_size;
      const int64_t end = std::min(weight.K, begin + weight.group_size);
      const auto inputs = row.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      const Grid grid = rule.fit(n, group, inputs);
      set_grid(weight, n, group, grid);
      uint8_t* codes = weight.codes.data() + n * weight.K + begin;
      for (const float value : inputs) *codes++ = rule.round(grid, value);
    }
  });
  return weight;
}

}  // namespace halley
