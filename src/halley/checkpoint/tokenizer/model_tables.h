// The two large members of a tokenizer.json, model.vocab and model.merges, as flat tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/tokenizer/component.h"

namespace halley {

struct ModelTables {
  struct Span {
    size_t begin = 0;
    size_t num_bytes = 0;
  };
  struct Token {
    Span text;
    uint64_t id = 0;
  };
  struct MergePair {
    Span left;
    Span right;
  };

  std::string texts;  // what the spans point into
  std::vector<Token> vocab;
  std::vector<MergePair> merges;  // in the order of their ranks

  std::string_view text_of(const Span& span) const {
    return std::string_view(texts).substr(span.begin, span.num_bytes);
  }
};

/// From the parsed "model". Merges are "a b" or ["a", "b"]. Throws InputError.
ModelTables model_tables_of(const Component& model);

/// The same read straight from the text of the file, several times as fast as by way of a Json, and
/// the text without them: `null` stands for each.
struct ExtractedTables {
  ModelTables tables;
  std::string rest;
};

/// Nothing where the text has anything out of the ordinary: then parse all of it, which says what
/// is wrong or knows how to read it.
std::optional<ExtractedTables> extract_model_tables(std::string_view text);

}  // namespace halley
