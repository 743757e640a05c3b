// Checkpoints of a model's body alone, as embedding models are saved: names without "model.".
#pragma once

#include <memory>

#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// `source` itself, or, where it has "layers.0." and no tensor begins with "model.", the same
/// tensors under names with "model." before them.
std::unique_ptr<TensorSource> with_model_prefix(std::unique_ptr<TensorSource> source);

}  // namespace halley
