// From a linear layer's f32 weights and statistics to the tensors of the checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/dtype.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"
#include "halley/quant/methods/block_clip.h"
#include "halley/quant/methods/block_inputs.h"
#include "halley/quant/methods/f16_report.h"
#include "halley/quant/methods/layer_transforms.h"
#include "halley/quant/methods/recipe.h"

namespace halley {

struct LinearJob {
  const Recipe& recipe;
  std::span<const LayerOverride> overrides;
  const LinearSpec& spec;
  // FMPQ: how the input is quantized, and the statistics of the quantized input in packed order.
  const InputPlan* plan = nullptr;
  const InputStats* packed_stats = nullptr;
  BlockClip* block_clip = nullptr;  // clip search of the queries' and keys' weights
  // NestedFP: the checkpoint, whose types the report names, and the type of tensors that it lacks.
  const TensorSource* original = nullptr;
  DType dense_dtype = DType::kF32;
};

struct QuantizedLinear {
  std::vector<CheckpointTensor> tensors;
  std::vector<WrittenLayer> written;  // of each stored tensor
  std::vector<RoundingReport> roundings;
};

/// Whether any stored tensor of the layer will be quantized.
bool is_quantized(const LinearJob& job);

/// All stored tensors of one linear layer. Layers that are left as they are give no tensors. Throws
/// UnsupportedError where the format cannot hold the layer's shape.
QuantizedLinear quantize_linear(LayerInWork& layer, const LinearJob& job);

}  // namespace halley
