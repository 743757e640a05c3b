#include "halley/server/openai/token_texts.h"

#include <array>

#include "halley/base/error.h"

namespace halley {

TokenTexts::TokenTexts(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (const char* letter : {"a", "A", "e", "the"}) {
    const auto id = tokenizer.id_of(letter);
    if (!id) continue;
    const std::array<int32_t, 1> ids = {*id};
    anchor_ = id;
    anchor_text_ = tokenizer.decode(ids, false);
    return;
  }
}

std::string TokenTexts::text_of(int32_t id) const {
  try {
    if (anchor_) {
      const std::array<int32_t, 2> pair = {*anchor_, id};
      const std::string text = tokenizer_.decode(pair, false);
      if (text.starts_with(anchor_text_)) return text.substr(anchor_text_.size());
    }
    const std::array<int32_t, 1> ids = {id};
    return tokenizer_.decode(ids, false);
  } catch (const InputError&) {
    // A model may have more ids than its tokenizer; such a token has no text.
    return {};
  }
}

bool has_replacement(const std::string& text) {
  return text.find("\xEF\xBF\xBD") != std::string::npos;
}

}  // namespace halley
