// The vocabulary of a GGUF file: tokens with their types and the ids that mean something.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/gguf/gguf_file.h"

namespace halley {

/// The types of tokens, as the file numbers them; those of SentencePiece are the same.
enum class GgufTokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct GgufVocabulary {
  std::vector<std::string_view> tokens;  // by id; views into the file
  std::vector<GgufTokenType> types;      // of the token at the same index
  std::vector<double> scores;            // the same; empty where the file has none

  /// Special for a text, or found in it as a whole.
  bool is_added(size_t id) const {
    return types[id] == GgufTokenType::kControl || types[id] == GgufTokenType::kUserDefined;
  }
};

/// Throws InputError where tokens are missing or the arrays differ in length.
GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata);

/// The token of "tokenizer.ggml.<name>_token_id", as "bos"; nothing where the file names none.
std::optional<int64_t> gguf_token_id(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                                     std::string_view name);

}  // namespace halley
