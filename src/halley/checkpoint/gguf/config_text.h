// config.json and generation_config.json of a Hugging Face checkpoint, made from a GGUF file's
// metadata, so that families read one kind of configuration.
#pragma once

#include <string>

#include "halley/checkpoint/gguf/gguf_file.h"

namespace halley {

/// The text of config.json. Reads tensors too: factors of rotary embeddings are such. Throws
/// InputError for metadata that is missing or of another type, UnsupportedError for an architecture
/// or an option that is not read, CheckpointError for tensors that contradict it.
std::string make_config_text(const GgufHeader& header);

/// The text of generation_config.json: the ids that end an answer.
std::string make_generation_config_text(const GgufMetadata& metadata);

}  // namespace halley
