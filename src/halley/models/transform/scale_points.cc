#include "halley/models/transform/scale_points.h"

#include <algorithm>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/models/base/decoder_parts.h"
#include "halley/models/transform/layer_tensors.h"

namespace halley {
namespace {

const LayerSpec& layer_of(const DecoderConfig& config, int64_t layer_index) {
  return config.layers.at(static_cast<size_t>(layer_index));
}

/// Query heads that share a key and value head.
int64_t heads_per_group(const DecoderConfig& config) {
  return config.num_heads / config.num_kv_heads;
}

/// The value (or key) channel j * D + d that channel h * D + d of the queries meets.
int64_t kv_channel(const DecoderConfig& config, int64_t channel) {
  const int64_t D = config.head_dim;
  return channel / D / heads_per_group(config) * D + channel % D;
}

/// The first of the channels h * D + d that meet key or value channel j * D + d.
size_t first_channel(const DecoderConfig& config, int64_t of_kv) {
  const int64_t D = config.head_dim;
  return static_cast<size_t>(of_kv / D * heads_per_group(config) * D + of_kv % D);
}

ScalePoint point_before(InputKind kind, std::string name, const LinearSpec& reader) {
  ScalePoint point;
  point.kind = kind;
  point.name = std::move(name);
  point.K = reader.in_features;
  point.consumers.push_back(&reader);
  return point;
}

/// Factors on a block's inputs are taken from the norm before it.
void require_norm(const std::optional<NormSpec>& norm, ScalePoint& point) {
  if (norm) return;
  point.can_scale = false;
  point.why_not = "there is no norm before the block that could be divided by the factors";
}

void add_attention_points(const DecoderConfig& config, const LayerSpec& layer,
                          const std::string& prefix, std::vector<ScalePoint>& points) {
  ScalePoint in = point_before(InputKind::kAttentionIn, prefix + "qkv", layer.qkv);
  require_norm(layer.input_norm, in);
  points.push_back(std::move(in));
  ScalePoint out = point_before(InputKind::kAttentionOut, prefix + "o", layer.o);
  out.can_permute = true;
  if (heads_per_group(config) > 1) {
    for (int64_t k = 0; k < out.K; ++k) {
      out.groups.push_back(static_cast<int32_t>(kv_channel(config, k)));
    }
  }
  points.push_back(std::move(out));
}

void add_mlp_points(const DecoderConfig& config, const LayerSpec& layer, const std::string& prefix,
                    std::vector<ScalePoint>& points) {
  const MlpSpec& mlp = layer.mlp;
  const bool has_experts = mlp.router.has_value();
  ScalePoint in = point_before(
      InputKind::kMlpIn, prefix + (has_experts ? "experts.gate_up" : "gate_up"), mlp.gate_up[0]);
  for (size_t i = 1; i < mlp.gate_up.size(); ++i) in.consumers.push_back(&mlp.gate_up[i]);
  if (has_experts) in.consumers.push_back(&*mlp.router);
  require_norm(layer.mlp_norm, in);
  points.push_back(std::move(in));
  for (size_t i = 0; i < mlp.down.size(); ++i) {
    const std::string name = has_experts ? str(prefix, "experts.", i, ".down") : prefix + "down";
    ScalePoint out = point_before(InputKind::kMlpOut, name, mlp.down[i]);
    out.can_permute = true;
    // max(0, f x) = f max(0, x) for f above zero; a curved function has no such rule.
    if (!config.is_gated && config.activation != Activation::kRelu) {
      out.can_scale = false;
      out.why_not =
          "the MLP has no gate and its activation is curved, so a factor before it is not a factor "
          "behind it";
    }
    points.push_back(std::move(out));
  }
}

/// The gate_up whose `down` reads at the point.
const LinearSpec& gate_up_of(const MlpSpec& mlp, const ScalePoint& point) {
  const auto down = std::find_if(mlp.down.begin(), mlp.down.end(), [&](const LinearSpec& spec) {
    return &spec == point.consumers[0];
  });
  HALLEY_CHECK(down != mlp.down.end(), point.name);
  return mlp.gate_up[static_cast<size_t>(down - mlp.down.begin())];
}

/// Rows of keys (0) or values (1).
std::vector<LinearRow> kv_rows(TensorStore& layer, const DecoderConfig& config,
                               const LayerSpec& spec, int64_t which) {
  const int64_t H = config.num_heads, J = config.num_kv_heads, D = config.head_dim;
  const int64_t begin = (H + which * J) * D;
  return rows_of(layer, spec.qkv, begin, begin + J * D);
}

void divide_norm(TensorStore& layer, const NormSpec& norm, float offset,
                 std::span<const float> factors) {
  const std::span<float> weight = layer.f32(norm.weight_name);
  HALLEY_CHECK(weight.size() == factors.size(), norm.weight_name, weight.size(), factors.size());
  for (size_t k = 0; k < factors.size(); ++k) {
    weight[k] = (offset + weight[k]) / factors[k] - offset;
  }
  if (norm.bias_name.empty()) return;
  const std::span<float> bias = layer.f32(norm.bias_name);
  for (size_t k = 0; k < factors.size(); ++k) bias[k] /= factors[k];
}

std::vector<float> inverse(std::span<const float> factors) {
  std::vector<float> inverse;
  for (const float factor : factors) inverse.push_back(1 / factor);
  return inverse;
}

/// The permutation of J * D value channels that gives permutation `perm` of H * D attended ones.
std::vector<int32_t> value_perm(const DecoderConfig& config, std::span<const int32_t> perm) {
  const int64_t D = config.head_dim;
  std::vector<int32_t> of_values;
  for (int64_t c = 0; c < config.num_kv_heads * D; ++c) {
    of_values.push_back(static_cast<int32_t>(kv_channel(config, perm[first_channel(config, c)])));
  }
  for (size_t k = 0; k < perm.size(); ++k) {
    const auto channel = static_cast<int64_t>(k);
    const auto c = static_cast<size_t>(kv_channel(config, channel));
    HALLEY_CHECK(perm[k] / D == channel / D && kv_channel(config, perm[k]) == of_values[c], k,
                 perm[k]);
  }
  return of_values;
}

void check_permutation(std::span<const int32_t> perm, int64_t K) {
  std::vector<bool> is_there(static_cast<size_t>(K));
  HALLEY_CHECK(perm.size() == is_there.size(), perm.size(), K);
  for (const int32_t k : perm) {
    HALLEY_CHECK(k >= 0 && k < K && !is_there[static_cast<size_t>(k)], k, K);
    is_there[static_cast<size_t>(k)] = true;
  }
}

void check_factors(std::span<const float> factors, size_t count) {
  HALLEY_CHECK(factors.size() == count, factors.size(), count);
  for (const float factor : factors) HALLEY_CHECK(factor > 0, factor);
}

}  // namespace

std::vector<ScalePoint> list_scale_points(const DecoderConfig& config, int64_t layer_index) {
  const LayerSpec& layer = layer_of(config, layer_index);
  const std::string prefix = str("layers.", layer_index, ".");
  std::vector<ScalePoint> points;
  add_attention_points(config, layer, prefix, points);
  add_mlp_points(config, layer, prefix, points);
  return points;
}

TensorStore read_layer_tensors(const DecoderConfig& config, int64_t layer_index,
                               const TensorSource& source) {
  const std::string prefix = str("layers.", layer_index, ".");
  TensorStore layer(source.description());
  for (const DecoderPart& part : list_decoder_parts(config)) {
    if (!part.name.starts_with(prefix)) continue;
    if (part.kind == PartKind::kLinear) {
      copy_linear(source, *part.linear, layer);
    } else {
      copy_tensor(source, part.norm->weight_name, {part.num_rows}, layer);
      if (!part.norm->bias_name.empty()) {
        copy_tensor(source, part.norm->bias_name, {part.num_rows}, layer);
      }
    }
  }
  return layer;
}

void scale_inputs(TensorStore& layer, const DecoderConfig& config, int64_t layer_index,
                  const ScalePoint& point, std::span<const float> factors) {
  const LayerSpec& spec = layer_of(config, layer_index);
  HALLEY_CHECK(point.can_scale, point.name);
  check_factors(factors, static_cast<size_t>(point.K));
  for (const LinearSpec* consumer : point.consumers) {
    for (const LinearRow& row : rows_of(layer, *consumer, 0, consumer->out_features())) {
      for (size_t k = 0; k < factors.size(); ++k) row.weights[k] *= factors[k];
    }
  }
  switch (point.kind) {
    case InputKind::kAttentionIn:
      divide_norm(layer, *spec.input_norm, config.norm_weight_offset, factors);
      break;
    case InputKind::kMlpIn:
      divide_norm(layer, *spec.mlp_norm, config.norm_weight_offset, factors);
      break;
    case InputKind::kAttentionOut: {
      const std::vector<LinearRow> values = kv_rows(layer, config, spec, 1);
      for (size_t k = 0; k < factors.size(); ++k) {
        const int64_t c = kv_channel(config, static_cast<int64_t>(k));
        const size_t first = first_channel(config, c);
        HALLEY_CHECK(factors[k] == factors[first], point.name, k, factors[k], factors[first]);
        if (k == first) divide_row(values[static_cast<size_t>(c)], factors[k]);
      }
      break;
    }
    case InputKind::kMlpOut: {
      const int64_t up = config.is_gated ? point.K : 0;  // behind the gate's rows
      const std::vector<LinearRow> rows =
          rows_of(layer, gate_up_of(spec.mlp, point), up, up + point.K);
      for (size_t k = 0; k < factors.size(); ++k) divide_row(rows[k], factors[k]);
      break;
    }
  }
}

void permute_inputs(TensorStore& layer, const DecoderConfig& config, int64_t layer_index,
                    const ScalePoint& point, std::span<const int32_t> perm) {
  const LayerSpec& spec = layer_of(config, layer_index);
  HALLEY_CHECK(point.can_permute, point.name);
  check_permutation(perm, point.K);
  if (point.kind == InputKind::kAttentionOut) {
    permute_rows(kv_rows(layer, config, spec, 1), value_perm(config, perm));
  } else {
    const LinearSpec& gate_up = gate_up_of(spec.mlp, point);
    permute_rows(rows_of(layer, gate_up, 0, point.K), perm);
    if (config.is_gated) permute_rows(rows_of(layer, gate_up, point.K, 2 * point.K), perm);
  }
  std::vector<float> old;
  for (const LinearSpec* consumer : point.consumers) {
    for (const LinearRow& row : rows_of(layer, *consumer, 0, consumer->out_features())) {
      old.assign(row.weights.begin(), row.weights.end());
      for (size_t k = 0; k < perm.size(); ++k) {
        row.weights[k] = old[static_cast<size_t>(perm[k])];
      }
    }
  }
}

std::string why_not_smooth_keys(const DecoderConfig& config, int64_t layer_index) {
  const LayerSpec& spec = layer_of(config, layer_index);
  if (spec.q_norm.has_value() != spec.k_norm.has_value()) {
    return "of queries and keys only one is normed per head";
  }
  if (spec.k_norm && config.qk_norm_extent == QkNormExtent::kAllHeads) {
    return "queries and keys are normed over all heads together";
  }
  if (spec.rope_index >= 0 && config.ropes[static_cast<size_t>(spec.rope_index)].is_interleaved) {
    return "the rotary embedding turns neighbouring columns";
  }
  return {};
}

bool must_share_key_factors(const DecoderConfig& config, int64_t layer_index) {
  return layer_of(config, layer_index).k_norm.has_value();
}

void smooth_keys(TensorStore& layer, const DecoderConfig& config, int64_t layer_index,
                 std::span<const float> factors) {
  const LayerSpec& spec = layer_of(config, layer_index);
  HALLEY_CHECK(why_not_smooth_keys(config, layer_index).empty(), layer_index);
  const auto D = static_cast<size_t>(config.head_dim);
  check_factors(factors, static_cast<size_t>(config.num_kv_heads) * D);
  if (spec.rope_index >= 0) {
    const size_t half = config.ropes[static_cast<size_t>(spec.rope_index)].inv_freq.size();
    for (size_t c = 0; c < factors.size(); ++c) {
      HALLEY_CHECK(c % D >= half || factors[c] == factors[c + half], c);
    }
  }
  if (spec.k_norm) {
    for (size_t c = D; c < factors.size(); ++c) HALLEY_CHECK(factors[c] == factors[c - D], c);
    divide_norm(layer, *spec.k_norm, config.norm_weight_offset, factors.first(D));
    divide_norm(layer, *spec.q_norm, config.norm_weight_offset, inverse(factors.first(D)));
    return;
  }
  const std::vector<LinearRow> keys = kv_rows(layer, config, spec, 0);
  for (size_t c = 0; c < keys.size(); ++c) divide_row(keys[c], factors[c]);
  const std::vector<LinearRow> queries =
      rows_of(layer, spec.qkv, 0, config.num_heads * config.head_dim);
  const std::vector<float> query_factors = inverse(factors);
  for (size_t k = 0; k < queries.size(); ++k) {
    const int64_t c = kv_channel(config, static_cast<int64_t>(k));
    divide_row(queries[k], query_factors[static_cast<size_t>(c)]);
  }
}

}  // namespace halley
