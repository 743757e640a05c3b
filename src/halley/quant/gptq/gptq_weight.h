// Reads weights as GPTQ tools store them: codes packed along the inputs, zero points along the
// outputs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/quant/base/stored_weight.h"
#include "halley/quant/gptq/gptq_settings.h"

namespace halley {

/// One layer of a checkpoint, for either storage.
struct GptqLayerSource {
  const TensorSource& source;
  const LinearSpec::Part& part;
  int64_t in_features = 0;
  const GptqSettings& checkpoint;
  const GptqLayerSettings& settings;  // of this layer
};

/// The tensors of checkpoint_format gptq and gptq_v2 with their types and shapes: qweight, qzeros,
/// scales and, where it is needed, g_idx.
std::vector<TensorInfo> gptq_tensors(const LinearSpec::Part& part, int64_t in_features,
                                     const GptqLayerSettings& settings);

/// Throws CheckpointError where tensors are missing or have another type or shape, or where g_idx
/// does not put group_size inputs into each group. Reads qzeros and g_idx, which decide how the
/// rest is read.
std::unique_ptr<StoredWeight> open_gptq_weight(const GptqLayerSource& layer);

/// The facts that all storages share: names and bytes of the table's tensors that are there.
WeightDesc describe_part(const GptqLayerSource& layer, const std::vector<TensorInfo>& table);

/// "<source>: layer "<name>": tensor "<part.name><ending>": "
std::string tensor_message(const GptqLayerSource& layer, const char* ending);

/// find_tensor() for a table's entry, with layer, bits and group in its message; a tensor of scales
/// may be of any of f16, bf16 and f32.
const TensorInfo& find_stored(const GptqLayerSource& layer, const TensorInfo& expected);

}  // namespace halley
