// A model's tensors, whether safetensors files or a GGUF file hold them.
#pragma once

#include <filesystem>
#include <memory>

#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// The tensors of a model's directory (safetensors.h), with "model." before their names where they
/// are a model's body alone (prefixed_weights.h), or of a GGUF file under the names that a
/// Hugging Face checkpoint has for them. Throws as open_checkpoint_weights() and
/// open_gguf_weights().
std::unique_ptr<TensorSource> open_model_weights(const std::filesystem::path& model);

}  // namespace halley
