// Weights repacked for the Marlin kernel: 4 bits, symmetric, codes in the order in which the lanes
// of a warp multiply them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halley/quant/gptq/gptq_weight.h"

namespace halley {

/// What the two tensors are called: B and s by AutoGPTQ, qweight and scales by others.
enum class TileNames : uint8_t { kShort, kLong };

/// Codes and scales. Throws UnsupportedError where the sizes are no whole tiles.
std::vector<TensorInfo> tile_tensors(const LinearSpec::Part& part, int64_t in_features,
                                     const GptqLayerSettings& settings, TileNames names);

/// Throws CheckpointError where tensors are missing or have another type or shape.
std::unique_ptr<StoredWeight> open_tile_weight(const GptqLayerSource& layer);

}  // namespace halley
