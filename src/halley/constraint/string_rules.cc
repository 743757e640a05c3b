#include "halley/constraint/string_rules.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/constraint/char_set.h"
#include "halley/constraint/intersection.h"
#include "halley/constraint/pattern.h"
#include "halley/constraint/string_format.h"

namespace halley {
namespace {

bool is_within(const CharCounts& counts, const StringRules& rules) {
  return rules.num_chars_min <= counts.min && counts.max <= rules.num_chars_max;
}

// Characters are written as patterns write them, so that the encodings agree.
Grammar length_grammar(const GrammarBuilder& whole, const StringRules& rules) {
  GrammarBuilder builder(whole.where(), whole);
  const ExprId any_char = json_char(builder, CharSet::all());
  const int32_t most = std::max(rules.num_chars_min, kCountedCharsMax);
  const int32_t num_max =
      rules.num_chars_max == kUnbounded ? kUnbounded : std::min(rules.num_chars_max, most);
  return builder.finish(builder.repeat(any_char, rules.num_chars_min, num_max));
}

}  // namespace

std::optional<StringRules> string_rules(const SchemaNode& node) {
  StringRules rules;
  rules.num_chars_min = node.count_min("minLength");
  rules.num_chars_max = node.count_max("maxLength");
  if (rules.num_chars_min > rules.num_chars_max) return std::nullopt;
  if (node.has("pattern")) rules.patterns.push_back({node.text("pattern"), node.place("pattern")});
  if (!node.has("format")) return rules;
  const std::string format = node.text("format");
  const std::optional<std::string> pattern = pattern_of_format(format);
  if (!pattern) {
    node.reject_unsupported(str("the format ", quote(format),
                                " is not supported in constrained output. Supported are ",
                                names_of_formats(), "."));
  }
  if (!pattern->empty()) rules.patterns.push_back({*pattern, node.place("format")});
  return rules;
}

ExprId string_texts(GrammarBuilder& builder, const StringRules& rules, const std::string& where) {
  HALLEY_CHECK(!rules.patterns.empty());
  // Formats have lengths of their own, which most limits allow.
  bool needs_length = rules.num_chars_min > 0 || rules.num_chars_max != kUnbounded;
  std::vector<Grammar> all;
  for (const StringPattern& one : rules.patterns) {
    GrammarBuilder part(where, builder);
    CharCounts counts;
    all.push_back(part.finish(pattern_texts(part, one.pattern, TextForm::kJsonString, one.where,
                                            PatternMatch::kFound, &counts)));
    needs_length = needs_length && !is_within(counts, rules);
  }
  if (needs_length) all.push_back(length_grammar(builder, rules));
  if (all.size() > 1) return intersection_of(builder, all);
  const StringPattern& only = rules.patterns.front();
  return pattern_texts(builder, only.pattern, TextForm::kJsonString, only.where);
}

}  // namespace halley
