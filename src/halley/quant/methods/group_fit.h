// Fits a recipe's group size to the sizes of a model.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/models/base/decoder_config.h"
#include "halley/quant/methods/recipe.h"

namespace halley {

/// The group size that the whole model can have where the recipe's own does not divide the inputs
/// of a layer, and the user did not ask for it: the next lower power-of-two fraction of it, at
/// least 16, that divides the inputs of every layer which is quantized with the recipe's size, or 0
/// (per-channel) for QoQ, whose files hold groups of 128 alone. Nothing where the recipe's size
/// fits, or no other does: then the format rejects the layer by name.
struct GroupFit {
  int64_t group_size = 0;
  std::string note;  // says why
};
std::optional<GroupFit> fit_group_size(const Recipe& recipe,
                                       std::span<const LayerOverride> overrides,
                                       const DecoderConfig& config);

}  // namespace halley
