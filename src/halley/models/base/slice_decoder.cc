#include "halley/models/base/slice_decoder.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/input_slice.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

/// Outputs [begin, end) of a layer: some rows of each part that they lie in.
void add_rows_of(const LinearSpec& whole, const InputRange& rows, std::vector<Part>& parts) {
  int64_t part_begin = 0;
  for (const Part& part : whole.parts) {
    const int64_t begin = std::max(rows.begin, part_begin);
    const int64_t end = std::min(rows.end, part_begin + part.out_features);
    if (begin < end) {
      parts.push_back(part);
      parts.back().row_begin += begin - part_begin;
      parts.back().out_features = end - begin;
    }
    part_begin += part.out_features;
  }
}

/// The layer with these of its outputs, in this order.
LinearSpec take_outputs(LinearSpec layer, std::span<const InputRange> ranges) {
  std::vector<Part> parts;
  for (const InputRange& range : ranges) add_rows_of(layer, range, parts);
  layer.parts = std::move(parts);
  return layer;
}

/// Numbers of ranks that divide the heads, for a message.
std::vector<int64_t> fitting_sizes(const DecoderConfig& config) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= config.num_heads; ++size) {
    const bool has_kv = config.num_kv_heads % size == 0 || size % config.num_kv_heads == 0;
    if (config.num_heads % size == 0 && has_kv) sizes.push_back(size);
  }
  return sizes;
}

template <typename T>
void keep_range(std::vector<T>& values, int64_t begin, int64_t end) {
  if (values.empty()) return;
  values.erase(values.begin() + end, values.end());
  values.erase(values.begin(), values.begin() + begin);
}

DecoderConfig take_stage(const DecoderConfig& whole, const RankShare& share) {
  if (whole.num_layers < share.num_stages) {
    throw UnsupportedError(str("pipeline parallelism of ", whole.where, ": expected at most ",
                               whole.num_layers, " stages, one for each layer, got ",
                               share.num_stages, "."));
  }
  // Rounded up, so that no stage has more than the first.
  const auto first_layer = [&](int64_t stage) {
    return ceil_div(whole.num_layers * stage, int64_t{share.num_stages});
  };
  DecoderConfig config = whole;
  config.share = share;
  config.share.first_layer = first_layer(share.stage);
  const int64_t end = first_layer(share.stage + 1);
  keep_range(config.layers, config.share.first_layer, end);
  keep_range(config.kv_scales, config.share.first_layer, end);
  config.num_layers = end - config.share.first_layer;
  return config;
}

/// Whether every rank gets at least one expert of each layer that has them.
void check_experts(const DecoderConfig& whole, const RankShare& share) {
  bool has_experts = false;
  for (const LayerSpec& layer : whole.layers) {
    if (!layer.mlp.router) continue;
    has_experts = true;
    const int64_t num_experts = layer.mlp.router->out_features();
    if (num_experts >= share.num_ranks) continue;
    throw UnsupportedError(str("expert parallelism of ", whole.where, ": expected at most ",
                               num_experts, " ranks, one for each expert, got ", share.num_ranks,
                               ". Use fewer ranks, or leave --enable-expert-parallel out, which "
                               "divides the rows of every expert."));
  }
  if (has_experts) return;
  throw UnsupportedError(str("expert parallelism of ", whole.where,
                             ": expected layers with experts, got none in the family ",
                             quote(whole.family), ". Leave --enable-expert-parallel out."));
}

bool has_norms_over_heads(const DecoderConfig& config) {
  return config.qk_norm_extent == QkNormExtent::kAllHeads &&
         std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerSpec& layer) { return layer.q_norm || layer.k_norm; });
}

/// Divides the layers of one decoder.
class Slicer {
 public:
  Slicer(const DecoderConfig& whole, const LinearLoading& loading, const RankShare& share)
      : whole_(whole), loading_(loading), share_(share) {
    if (has_norms_over_heads(whole)) {
      throw UnsupportedError(str("tensor parallelism of ", whole.where,
                                 ": expected norms on each head's query and key, got norms over ",
                                 "all heads together, which are in several ranks. Use one rank, ",
                                 "or pipeline parallelism."));
    }
    const std::vector<int64_t> sizes = fitting_sizes(whole);
    if (std::find(sizes.begin(), sizes.end(), share.num_ranks) != sizes.end()) return;
    throw UnsupportedError(
        str("tensor parallelism of ", whole.where, ": expected a number of ranks ", "that divides ",
            whole.num_heads, " heads with ", whole.num_kv_heads,
            " heads of keys and values, which are ", sizes, ", got ", share.num_ranks, "."));
  }

  DecoderConfig slice() const {
    DecoderConfig config = whole_;
    config.share = share_;
    config.share.vocabulary = share_of_units(whole_.vocab_size, kPanelRows);
    config.num_heads = heads().size();
    config.num_kv_heads = kv_heads().size();
    for (LayerSpec& layer : config.layers) {
      layer.qkv = slice_qkv(layer.qkv);
      layer.o.inputs = {{heads().begin * whole_.head_dim, heads().end * whole_.head_dim}};
      if (layer.mlp.router && share_.has_whole_experts) {
        take_experts(layer.mlp);
      } else {
        slice_mlp(layer.mlp);
      }
    }
    if (config.lm_head) {
      config.lm_head = take_outputs(*config.lm_head, {{config.share.vocabulary}});
    }
    return config;
  }

 private:
  /// Divides the units of `size` among the ranks; returns the rank's.
  InputRange share_of_units(int64_t size, int64_t unit) const {
    const int64_t num_units = ceil_div(size, unit);
    return {std::min(size, num_units * share_.rank / share_.num_ranks * unit),
            std::min(size, num_units * (share_.rank + 1) / share_.num_ranks * unit)};
  }

  InputRange heads() const { return share_of_units(whole_.num_heads, 1); }
  InputRange kv_heads() const {
    const int64_t J = whole_.num_kv_heads;
    if (J >= share_.num_ranks) return share_of_units(J, 1);
    const int64_t head = share_.rank * J / share_.num_ranks;
    return {head, head + 1};
  }

  LinearSpec slice_qkv(const LinearSpec& qkv) const {
    const int64_t H = whole_.num_heads, J = whole_.num_kv_heads, D = whole_.head_dim;
    const auto rows = [D](int64_t first, const InputRange& range) {
      return InputRange{(first + range.begin) * D, (first + range.end) * D};
    };
    const InputRange ranges[] = {rows(0, heads()), rows(H, kv_heads()), rows(H + J, kv_heads())};
    return take_outputs(qkv, ranges);
  }

  void take_experts(MlpSpec& mlp) const {
    const InputRange own = share_of_units(mlp.router->out_features(), 1);
    mlp.first_expert = own.begin;
    keep_range(mlp.gate_up, own.begin, own.end);
    keep_range(mlp.down, own.begin, own.end);
  }

  void slice_mlp(MlpSpec& mlp) const {
    for (size_t i = 0; i < mlp.down.size(); ++i) {
      LinearSpec& down = mlp.down[i];
      const int64_t F = down.in_features;
      const InputRange own = share_of_units(F, unit_of(down));
      if (own.size() == 0) reject_mlp(down);
      down.inputs = own;
      std::vector<InputRange> ranges = {own};
      if (whole_.is_gated) ranges.push_back({F + own.begin, F + own.end});
      mlp.gate_up[i] = take_outputs(mlp.gate_up[i], ranges);
    }
  }

  int64_t unit_of(const LinearSpec& down) const {
    int64_t unit = 1;
    for (const Part& part : down.parts) {
      const auto weight = loading_.scheme.open(loading_.source, part, down.in_features);
      unit = std::lcm(unit, input_unit(weight->desc(), down.in_features));
    }
    return unit;
  }

  [[noreturn]] void reject_mlp(const LinearSpec& down) const {
    const int64_t unit = unit_of(down);
    throw UnsupportedError(str("layer ", quote(down.display_name()), ": expected at most ",
                               ceil_div(down.in_features, unit), " ranks, since its ",
                               down.in_features, " inputs are cut at multiples of ", unit, ", got ",
                               share_.num_ranks, "."));
  }

  const DecoderConfig& whole_;
  const LinearLoading& loading_;
  const RankShare share_;
};

}  // namespace

DecoderConfig slice_decoder(const DecoderConfig& whole, const LinearLoading& loading,
                            const RankShare& share) {
  if (share.has_whole_experts) check_experts(whole, share);
  DecoderConfig stage = take_stage(whole, share);
  if (share.num_ranks == 1) return stage;
  return Slicer(stage, loading, stage.share).slice();
}

}  // namespace halley
