// How a checkpoint in the layout of sentence-transformers makes embeddings of hidden states.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace halley {

struct SentencePooling {
  enum class Mode : uint8_t { kLastToken, kMeanTokens };
  Mode mode = Mode::kLastToken;
  bool normalizes = false;  // it has a module Normalize
};

/// From modules.json and the Pooling module's config.json; nothing where there is no modules.json,
/// or none of its modules pools. Throws InputError where one of them is malformed, UnsupportedError
/// for a module or a kind of pooling that we do not do, by name.
std::optional<SentencePooling> load_sentence_pooling(const std::filesystem::path& model_dir);

}  // namespace halley
