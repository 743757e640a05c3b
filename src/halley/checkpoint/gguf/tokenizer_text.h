// The files of a Hugging Face tokenizer, made from a GGUF file's metadata: tokenizer.json for
// byte-level BPE ("gpt2"), tokenizer.model for SentencePiece ("llama"), and tokenizer_config.json.
#pragma once

#include <string>

#include "halley/checkpoint/gguf/gguf_file.h"

namespace halley {

enum class GgufTokenizer : uint8_t { kNone, kByteLevelBpe, kSentencePiece };

/// Throws UnsupportedError for another kind, by name.
GgufTokenizer gguf_tokenizer_of(const GgufMetadata& metadata);

/// The text of tokenizer.json, for kByteLevelBpe. What splits a text into words is named by
/// tokenizer.ggml.pre. Throws InputError for metadata that is missing or contradicts itself,
/// UnsupportedError for a splitting rule that is not known.
std::string make_tokenizer_json(const GgufMetadata& metadata);

/// The bytes of tokenizer.model, for kSentencePiece. Throws as make_tokenizer_json().
std::string make_tokenizer_model(const GgufMetadata& metadata);

/// The text of tokenizer_config.json: special tokens and chat templates.
std::string make_tokenizer_config(const GgufMetadata& metadata);

}  // namespace halley
