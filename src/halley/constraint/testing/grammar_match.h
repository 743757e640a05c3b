// For tests of grammars: which texts are a grammar's, and which grammars are rejected.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
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

struct GrammarCase {
  std::string source;
  std::vector<std::string> texts, others;
};

/// `make` makes the grammar of a source.
template <typename Make>
void expect_texts(const std::vector<GrammarCase>& cases, const Make& make) {
  for (const GrammarCase& c : cases) {
    SCOPED_TRACE(c.source);
    const Grammar grammar = make(c.source);
    for (const std::string& text : c.texts) EXPECT_TRUE(matches(grammar, text)) << quote(text);
    for (const std::string& text : c.others) EXPECT_FALSE(matches(grammar, text)) << quote(text);
  }
}

/// Sources that are rejected, each with a part of the message.
template <typename Make>
void expect_errors(const std::vector<std::pair<std::string, std::string>>& cases,
                   const Make& make) {
  for (const auto& [source, message] : cases) {
    try {
      make(source);
      ADD_FAILURE() << "was taken: " << quote(source, 100);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(message)) << quote(source, 100);
    }
  }
}

}  // namespace halley
