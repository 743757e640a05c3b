// The tensors of a GGUF file under the names and in the order of rows of a Hugging Face checkpoint.
#pragma once

#include <filesystem>
#include <memory>

#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// Tensors in full precision have their own type and the name "<layer>.weight"; quantized ones are
/// u8 [rows, bytes of a row] with the name "<layer>.weight.q4_k". Experts that the file stacks are
/// a tensor each. Rows of q and k are put into the order in which halves of a head rotate, and 1 is
/// subtracted from Gemma's norms: such tensors are made in memory when they are first viewed, and
/// live as long as the source. Throws CheckpointError, InputError or UnsupportedError as MappedGguf
/// and name_gguf_tensors().
std::unique_ptr<TensorSource> open_gguf_weights(const std::filesystem::path& path);

}  // namespace halley
