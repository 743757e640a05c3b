#include "halley/quant/methods/group_fit.h"

#include <algorithm>

#include "halley/base/str.h"
#include "halley/quant/methods/layer_stats.h"

namespace halley {
namespace {

constexpr int64_t kGroupSizeMin = 16;

/// A stored weight that is quantized with the recipe's group size.
struct GroupedLayer {
  std::string name;
  int64_t num_inputs = 0;
};

std::vector<GroupedLayer> list_grouped(std::span<const LayerOverride> overrides,
                                       const DecoderConfig& config) {
  std::vector<GroupedLayer> layers;
  for (const LayerSpec& layer : config.layers) {
    for (const LinearSpec* linear : list_linears(layer)) {
      for (const LinearSpec::Part& part : linear->parts) {
        const auto change = std::find_if(
            overrides.begin(), overrides.end(),
            [&](const LayerOverride& other) { return other.pattern.matches(part.name); });
        const bool has_own =
            change != overrides.end() && (change->is_dense || change->group_size.has_value());
        if (!part.is_usually_dense && !has_own) layers.push_back({part.name, linear->in_features});
      }
    }
  }
  return layers;
}

bool has_choice(WeightFormat format) {
  return format == WeightFormat::kGptq || format == WeightFormat::kAwq ||
         format == WeightFormat::kPackedInt;
}

}  // namespace

std::optional<GroupFit> fit_group_size(const Recipe& recipe,
                                       std::span<const LayerOverride> overrides,
                                       const DecoderConfig& config) {
  const bool is_qoq = recipe.format == WeightFormat::kQoq;
  if (recipe.is_group_size_given || recipe.group_size == 0) return std::nullopt;
  if (!is_qoq && !has_choice(recipe.format)) return std::nullopt;
  const std::vector<GroupedLayer> layers = list_grouped(overrides, config);
  // A group that is larger than a layer's inputs is one group of them all.
  const auto is_split = [&](const GroupedLayer& layer, int64_t size) {
    return layer.num_inputs % size != 0 && (is_qoq || layer.num_inputs > size);
  };
  const auto fits = [&](int64_t size) {
    return std::none_of(layers.begin(), layers.end(),
                        [&](const GroupedLayer& layer) { return is_split(layer, size); });
  };
  if (fits(recipe.group_size)) return std::nullopt;
  const auto first = std::find_if(layers.begin(), layers.end(), [&](const GroupedLayer& layer) {
    return is_split(layer, recipe.group_size);
  });
  const std::string why = str("groups of ", recipe.group_size, " do not divide the ",
                              first->num_inputs, " inputs of ", first->name);
  if (is_qoq) return GroupFit{0, str("per-channel scales, since ", why)};
  for (int64_t size = recipe.group_size / 2; size >= kGroupSizeMin; size /= 2) {
    if (fits(size)) return GroupFit{size, str("groups of ", size, ", since ", why)};
  }
  return std::nullopt;
}

}  // namespace halley
