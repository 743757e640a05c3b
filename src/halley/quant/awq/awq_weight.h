// Reads weights as AWQ tools store them, in three layouts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/quant/awq/awq_settings.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// One layer of a checkpoint.
struct AwqLayerSource {
  const TensorSource& source;
  const LinearSpec::Part& part;
  int64_t in_features = 0;
  const AwqSettings& checkpoint;
};

/// The tensors of a layer with types and shapes: qweight, scales and, with zero points, qzeros
/// (scaled_zeros of llm-awq).
/// Throws CheckpointError where the sizes do not fit the layout.
std::vector<TensorInfo> awq_tensors(const LinearSpec::Part& part, int64_t in_features,
                                    const AwqSettings& settings, AwqStorage storage);

/// Throws CheckpointError where tensors are missing or have another type or shape, also where they
/// are of another layout than the configuration says.
std::unique_ptr<StoredWeight> open_awq_weight(const AwqLayerSource& layer);

}  // namespace halley
