// Reads weights repacked for the Marlin kernel: 4 bits, symmetric, codes in the order of the mma
// fragments of a warp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halley/quant/gptq/gptq_weight.h"

namespace halley {

/// Names of the two tensors: B and s in AutoGPTQ's files, qweight and scales in others.
enum class TileNames : uint8_t { kShort, kLong };

/// The tensors of codes and scales. Throws UnsupportedError where the sizes are no whole tiles.
std::vector<TensorInfo> tile_tensors(const LinearSpec::Part& part, int64_t in_features,
                                     const GptqLayerSettings& settings, TileNames names);

/// Throws CheckpointError where tensors are missing or have another type or shape.
std::unique_ptr<StoredWeight> open_tile_weight(const GptqLayerSource& layer);

}  // namespace halley
