// The part of a recipe that changes a layer's weights without changing its function: smoothing of
// keys and of inputs, and channel permutations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_store.h"
#include "halley/core/exec_context.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/transform/scale_points.h"
#include "halley/quant/methods/layer_stats.h"
#include "halley/quant/methods/recipe.h"

namespace halley {

/// The layer that is being quantized.
struct LayerInWork {
  ExecContext& context;
  const DecoderConfig& config;
  int64_t index = 0;
  TensorStore tensors;             // f32; changed step by step
  LayerStats& stats;               // follows the changes
  std::vector<std::string> notes;  // for the user

  const LayerSpec& spec() const { return config.layers[static_cast<size_t>(index)]; }
};

/// Names of the checkpoint tensors of a linear layer, each once, without ".weight".
std::vector<std::string> stored_names(const LinearSpec& spec);

/// The f32 weight [N, K] of one of them.
Matrix weight_matrix(TensorStore& tensors, const std::string& stored_name);

/// The f32 weights of all layers that read a point's input.
std::vector<ConstMatrix> consumer_weights(LayerInWork& layer, const ScalePoint& point);

/// Applies the recipe's transforms. One that this model does not allow is skipped and noted.
void transform_layer(const Recipe& recipe, LayerInWork& layer);

/// Permutes all statistics of a point's consumers as permute_inputs() permuted the weights.
void permute_point(LayerInWork& layer, const ScalePoint& point, const std::vector<int32_t>& perm);

}  // namespace halley
