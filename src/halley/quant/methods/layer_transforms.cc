#include "halley/quant/methods/layer_transforms.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/quant/methods/block_inputs.h"
#include "halley/quant/solve/clip_search.h"
#include "halley/quant/solve/grid_rule.h"
#include "halley/quant/solve/scale_search.h"

namespace halley {
namespace {

bool is_block_input(const ScalePoint& point) {
  return point.kind == InputKind::kAttentionIn || point.kind == InputKind::kMlpIn;
}

/// The statistics of the channels. A mixture of experts has the router's, which sees all tokens.
InputStats& stats_of(LayerInWork& layer, const ScalePoint& point) {
  const LayerSpec& spec = layer.spec();
  const bool is_of_experts = point.kind == InputKind::kMlpIn && spec.mlp.router;
  return layer.stats.of(is_of_experts ? *spec.mlp.router : *point.consumers.front());
}

/// Quantizes and dequantizes a weight, after a clip search where the recipe has one.
FakeQuantize fake_quantize_of(const Recipe& recipe, ExecContext& context, const InputStats& stats) {
  return [&recipe, &context, &stats](Matrix w, std::span<const float> factors) {
    const GridOptions options = {
        .bits = recipe.bits,
        .group_size = recipe.group_size == 0 ? w.num_cols : recipe.group_size,
        .is_symmetric = recipe.is_symmetric};
    const int64_t num_groups = ceil_div(w.num_cols, options.group_size);
    const ClippedRule make_rule = [&](std::vector<float> clip) {
      return make_minmax_rule(options, std::move(clip), num_groups);
    };
    std::vector<float> clip;
    if (recipe.is_clipped) {
      InputStats scaled = sample_of(stats, stats.rows, stats.num_rows);
      scale_stats(scaled, inverse_of(factors));
      // Half as many ratios as the final search: they only have to rank the factors.
      clip = search_clip(context, w, scaled, options.group_size, make_rule, {.num_steps = 10});
    }
    const QuantizedWeight quantized = round_to_nearest(context, w, *make_rule(std::move(clip)));
    for (int64_t n = 0; n < w.num_rows; ++n) {
      dequantize_row(quantized, n, {w.row<float>(n), static_cast<size_t>(w.num_cols)});
    }
  };
}

void smooth_point(const Recipe& recipe, LayerInWork& layer, const ScalePoint& point) {
  const bool is_input = is_block_input(point);
  const Smoothing smoothing = is_input ? recipe.block_input : recipe.block_output;
  if (smoothing == Smoothing::kNone) return;
  if (!point.can_scale) {
    layer.notes.push_back(str(point.name, ": not smoothed: ", point.why_not));
    return;
  }
  InputStats& stats = stats_of(layer, point);
  if (stats.num_tokens == 0) {
    layer.notes.push_back(str(point.name, ": not smoothed: no calibration token reached it"));
    return;
  }
  const std::vector<ConstMatrix> weights = consumer_weights(layer, point);
  std::vector<float> factors;
  if (smoothing == Smoothing::kSearch) {
    factors = search_awq_scales(layer.context, weights, stats,
                                fake_quantize_of(recipe, layer.context, stats), point.groups)
                  .factors;
  } else if (smoothing == Smoothing::kBlocks) {
    factors = search_block_factors(recipe, layer.context, weights, stats, point.groups);
  } else {
    const double alpha = is_input ? recipe.alpha_input : recipe.alpha_output;
    factors = smooth_factors(weights, stats, alpha, point.groups);
  }
  if (factors.empty()) return;
  scale_inputs(layer.tensors, layer.config, layer.index, point, factors);
  for (const LinearSpec* consumer : point.consumers) {
    scale_stats(layer.stats.of(*consumer), inverse_of(factors));
  }
}

void smooth_layer_keys(const Recipe& recipe, LayerInWork& layer) {
  const std::string rejection = why_not_smooth_keys(layer.config, layer.index);
  if (!rejection.empty()) {
    layer.notes.push_back(str("layers.", layer.index, ": keys not smoothed: ", rejection));
    return;
  }
  const int64_t J = layer.config.num_kv_heads, D = layer.config.head_dim;
  std::vector<float> abs_max = layer.stats.keys().abs_max;
  const auto head_size = static_cast<size_t>(D);
  if (must_share_key_factors(layer.config, layer.index)) {
    for (size_t d = 0; d < head_size; ++d) {
      float largest = 0;
      for (size_t i = d; i < abs_max.size(); i += head_size) {
        largest = std::max(largest, abs_max[i]);
      }
      for (size_t i = d; i < abs_max.size(); i += head_size) abs_max[i] = largest;
    }
  }
  const int rope = layer.spec().rope_index;
  const int64_t rotary_dim =
      rope < 0
          ? 0
          : 2 * static_cast<int64_t>(layer.config.ropes[static_cast<size_t>(rope)].inv_freq.size());
  std::vector<float> factors;
  for (int64_t j = 0; j < J; ++j) {
    const std::span<const float> head =
        std::span(abs_max).subspan(static_cast<size_t>(j * D), head_size);
    const std::vector<float> of_head = key_smooth_factors(head, rotary_dim, recipe.alpha_key);
    factors.insert(factors.end(), of_head.begin(), of_head.end());
  }
  smooth_keys(layer.tensors, layer.config, layer.index, factors);
}

/// Channels by descending salience; equal ones keep their order.
std::vector<int32_t> descending(std::span<const float> salience) {
  std::vector<int32_t> perm(salience.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::stable_sort(perm.begin(), perm.end(), [&](int32_t a, int32_t b) {
    return salience[static_cast<size_t>(a)] > salience[static_cast<size_t>(b)];
  });
  return perm;
}

/// One permutation of a head's channels for all query heads that share a value head.
std::vector<int32_t> order_in_heads(const DecoderConfig& config, std::span<const float> salience) {
  const int64_t H = config.num_heads, J = config.num_kv_heads, D = config.head_dim;
  std::vector<int32_t> perm(salience.size());
  for (int64_t j = 0; j < J; ++j) {
    std::vector<float> of_head(static_cast<size_t>(D), 0.0f);
    for (int64_t h = j * (H / J); h < (j + 1) * (H / J); ++h) {
      for (int64_t d = 0; d < D; ++d) {
        float& largest = of_head[static_cast<size_t>(d)];
        largest = std::max(largest, salience[static_cast<size_t>(h * D + d)]);
      }
    }
    const std::vector<int32_t> in_head = descending(of_head);
    for (int64_t h = j * (H / J); h < (j + 1) * (H / J); ++h) {
      for (int64_t d = 0; d < D; ++d) {
        perm[static_cast<size_t>(h * D + d)] =
            static_cast<int32_t>(h * D) + in_head[static_cast<size_t>(d)];
      }
    }
  }
  return perm;
}

void reorder_point(LayerInWork& layer, const ScalePoint& point) {
  if (!point.can_permute) return;
  const InputStats& stats = stats_of(layer, point);
  if (stats.num_tokens == 0) return;
  const std::vector<int32_t> perm = point.kind == InputKind::kAttentionOut
                                        ? order_in_heads(layer.config, stats.abs_max)
                                        : descending(stats.abs_max);
  permute_point(layer, point, perm);
}

}  // namespace

std::vector<std::string> stored_names(const LinearSpec& spec) {
  std::vector<std::string> names;
  for (const LinearSpec::Part& part : spec.parts) {
    if (std::find(names.begin(), names.end(), part.name) == names.end()) {
      names.push_back(part.name);
    }
  }
  return names;
}

Matrix weight_matrix(TensorStore& tensors, const std::string& stored_name) {
  const std::string name = stored_name + ".weight";
  const Shape shape = tensors.find(name)->shape;
  return f32_matrix(tensors.f32(name).data(), shape.at(0), shape.at(1));
}

std::vector<ConstMatrix> consumer_weights(LayerInWork& layer, const ScalePoint& point) {
  std::vector<ConstMatrix> weights;
  for (const LinearSpec* consumer : point.consumers) {
    for (const std::string& name : stored_names(*consumer)) {
      weights.push_back(weight_matrix(layer.tensors, name));
    }
  }
  return weights;
}

void permute_point(LayerInWork& layer, const ScalePoint& point, const std::vector<int32_t>& perm) {
  permute_inputs(layer.tensors, layer.config, layer.index, point, perm);
  for (const LinearSpec* consumer : point.consumers) {
    permute_stats(layer.stats.of(*consumer), perm);
  }
}

void transform_layer(const Recipe& recipe, LayerInWork& layer) {
  if (recipe.has_key_smoothing) smooth_layer_keys(recipe, layer);
  for (const ScalePoint& point : list_scale_points(layer.config, layer.index)) {
    smooth_point(recipe, layer, point);
    // plan_input() permutes channels for FMPQ's activation blocks.
    if (recipe.is_reordered && recipe.format != WeightFormat::kFmpq) reorder_point(layer, point);
  }
}

}  // namespace halley
