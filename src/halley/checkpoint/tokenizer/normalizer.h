// The "normalizer" of tokenizer.json: text to text, before anything is split.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "halley/json/json.h"

namespace halley {

/// A text on its way to the tokens.
struct NormalText {
  std::string text;
  /// The first bytes of `text` that come from the first character of the whole input (with what
  /// was put before it). Metaspace with prepend_scheme "first" asks for it. 0 for a text that
  /// stands behind an added token.
  size_t num_start_bytes = 0;
};

/// Immutable; any thread.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalText& text) const = 0;
};

/// From the value of "normalizer". Throws InputError, or UnsupportedError for a kind that we do not
/// do, by name.
std::unique_ptr<Normalizer> parse_normalizer(const Json& value, const std::string& where);

}  // namespace halley
