// Reads the files next to a tokenizer.model that say what it leaves open.
#pragma once

#include <filesystem>

#include "halley/checkpoint/tokenizer/sentencepiece_tokenizer.h"

namespace halley {

/// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json of `model_dir`, each
/// where it is there. Throws InputError.
SpmSettings read_spm_settings(const std::filesystem::path& model_dir);

}  // namespace halley
