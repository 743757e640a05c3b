// For tests of grammars: whether a text is one of a grammar's.
#pragma once

#include <string_view>

#include "halley/constraint/grammar.h"
#include "halley/constraint/matcher.h"

namespace halley {

inline bool matches(const Grammar& grammar, std::string_view text) {
  Matcher matcher(grammar);
  Matcher::State state = matcher.start();
  for (const char c : text) {
    if (state < 0) return false;
    state = matcher.next(state, static_cast<uint8_t>(c));
  }
  return state >= 0 && matcher.may_end(state);
}

}  // namespace halley
