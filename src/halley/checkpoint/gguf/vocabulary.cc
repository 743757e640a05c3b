#include "halley/checkpoint/gguf/vocabulary.h"

#include "halley/base/str.h"

namespace halley {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";

}  // namespace

GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  const auto tokens = metadata.strings(kTokens);
  if (!tokens || tokens->empty()) metadata.fail(kTokens, "expected tokens, got nothing.");
  vocabulary.tokens = *tokens;
  const auto check_count = [&](const char* key, size_t count) {
    if (count == tokens->size()) return;
    metadata.fail(key, str("expected as many as there are tokens, ", tokens->size(), ", got ",
                           count, ". Convert the model again."));
  };
  const auto types = metadata.integers(kTypes);
  if (types) check_count(kTypes, types->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    const int64_t type = types ? (*types)[i] : 1;
    if (type < 1 || type > 6) {
      metadata.fail(kTypes, str("expected types from 1 to 6, got ", type, " at ", i, "."));
    }
    vocabulary.types.push_back(static_cast<GgufTokenType>(type));
  }
  if (auto scores = metadata.numbers(kScores)) {
    check_count(kScores, scores->size());
    vocabulary.scores = std::move(*scores);
  }
  return vocabulary;
}

std::optional<int64_t> gguf_token_id(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                                     std::string_view name) {
  return metadata.integer(str("tokenizer.ggml.", name, "_token_id"), 0,
                          static_cast<int64_t>(vocabulary.tokens.size()) - 1);
}

}  // namespace halley
