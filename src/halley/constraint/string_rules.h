// The contents of JSON strings that fulfil a schema's pattern, format and lengths together.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halley/constraint/grammar.h"
#include "halley/constraint/schema_node.h"

namespace halley {

/// The most characters of a string with a pattern or a format and "maxLength": a larger limit
/// counts as this, so that the combination stays small. ("minLength" may demand more.)
constexpr int32_t kCountedCharsMax = 512;

struct StringPattern {
  std::string pattern;
  std::string where;  // for messages
  auto operator<=>(const StringPattern& other) const { return pattern <=> other.pattern; }
};

struct StringRules {
  std::vector<StringPattern> patterns;  // of "pattern" and "format"
  int32_t num_chars_min = 0;
  int32_t num_chars_max = kUnbounded;
  auto operator<=>(const StringRules&) const = default;
};

/// None where no length is allowed. Throws UnsupportedError for an unsupported format.
std::optional<StringRules> string_rules(const SchemaNode& node);

/// The contents, encoded as in a JSON string; there is at least one pattern. Throws as
/// pattern_texts() and intersection_of().
ExprId string_texts(GrammarBuilder& builder, const StringRules& rules, const std::string& where);

}  // namespace halley
