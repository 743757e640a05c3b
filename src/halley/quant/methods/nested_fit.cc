#include "halley/quant/methods/nested_fit.h"

#include <set>
#include <utility>

#include "halley/base/str.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/dense_weight.h"

namespace halley {
namespace {

struct StoredWeightPart {
  const LinearSpec* spec = nullptr;
  const LinearSpec::Part* part = nullptr;
  size_t kind = 0;
};

/// The stored weights of all layers, each once: parts may be rows of the same one.
std::vector<StoredWeightPart> list_weights(const DecoderConfig& config) {
  std::vector<StoredWeightPart> weights;
  std::set<std::pair<std::string, int64_t>> known;
  const auto add = [&](const LinearSpec& spec, size_t kind) {
    for (const LinearSpec::Part& part : spec.parts) {
      if (known.emplace(part.name, part.expert).second) weights.push_back({&spec, &part, kind});
    }
  };
  for (const LayerSpec& layer : config.layers) {
    add(layer.qkv, 0);
    add(layer.o, 1);
    for (size_t i = 0; i < layer.mlp.gate_up.size(); ++i) {
      add(layer.mlp.gate_up[i], 2);
      add(layer.mlp.down[i], 3);
    }
  }
  return weights;
}

NestedFitLayer measure(ExecContext& context, const TensorSource& source,
                       const StoredWeightPart& weight) {
  const LinearSpec::Part& part = *weight.part;
  const TensorInfo info = expected_dense_tensor(part, weight.spec->in_features, DType::kF16);
  const TensorInfo& found = find_dense_tensor(source, info.name, info.shape);
  TensorView view = source.view(found);
  NestedFitLayer layer = {
      .name = part.name, .kind = weight.kind, .dtype = found.dtype, .rounding = {}};
  if (part.expert >= 0) {
    view = view.rows(part.expert, part.expert + 1);
    layer.name += str("[", part.expert, "]");
  }
  layer.rounding = round_to_f16(context, found.name, view, {});
  source.release(found);
  return layer;
}

}  // namespace

void NestedFitKind::add(const NestedFitLayer& layer) {
  ++num_layers;
  if (layer.is_applicable()) ++num_applicable;
  rounding.append(layer.rounding);
}

double NestedFitKind::share_within() const {
  if (rounding.num_values == 0) return 1;
  return 1.0 - static_cast<double>(rounding.num_beyond) / static_cast<double>(rounding.num_values);
}

NestedFit measure_nested_fit(ExecContext& context, const DecoderConfig& config,
                             const TensorSource& source,
                             const std::function<void(size_t done, size_t total)>& progress) {
  NestedFit fit;
  const std::vector<StoredWeightPart> weights = list_weights(config);
  for (size_t i = 0; i < weights.size(); ++i) {
    NestedFitLayer layer = measure(context, source, weights[i]);
    fit.kinds.at(layer.kind).add(layer);
    fit.total.add(layer);
    if (!layer.is_applicable()) fit.exceptions.push_back(std::move(layer));
    if (progress) progress(i + 1, weights.size());
  }
  return fit;
}

}  // namespace halley
