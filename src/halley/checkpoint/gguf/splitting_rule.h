// The rules that split a text into words before byte-level BPE, by their name in
// tokenizer.ggml.pre.
#pragma once

#include <array>

#include "halley/checkpoint/gguf/gguf_file.h"

namespace halley {

struct SplittingRule {
  const char* name;
  /// Applied one behind the other, each to the pieces of the one before; null: no more.
  std::array<const char*, 4> regexes;
  bool is_nfc = false;          // texts are normalized to NFC first
  bool ignores_merges = false;  // a word that is a token needs no merges
  bool has_bos = false;         // where the metadata does not say it
};

/// Throws UnsupportedError that names those that are known.
const SplittingRule& find_splitting_rule(const GgufMetadata& metadata);

}  // namespace halley
