// The small files of a model, by their names in a Hugging Face checkpoint: those of its folder, or
// what the metadata of a GGUF file say in their place.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace halley {

/// Whether `model` is a directory with a file of this name, or a GGUF file that gives its text.
bool has_model_file(const std::filesystem::path& model, const std::string& name);

/// The text of config.json, generation_config.json, tokenizer.json, tokenizer.model,
/// tokenizer_config.json, ... of at most `num_bytes_max` bytes. Throws InputError where there is
/// none or it is longer, and as parse_gguf() and the makers of the texts.
std::string read_model_file(const std::filesystem::path& model, const std::string& name,
                            size_t num_bytes_max);

}  // namespace halley
