#include "halley/checkpoint/tokenizer/text_pattern.h"

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/oniguruma.h"

namespace halley {

TextPattern TextPattern::parse(const Json& value, const std::string& where) {
  TextPattern pattern;
  if (value.is_object() && value.size() == 1) {
    const auto member = value.begin();
    if (member.key() == "String" && member->is_string()) {
      pattern.plain_text_ = member->get<std::string>();
      if (pattern.plain_text_.empty()) {
        throw InputError(str(where, ": expected a pattern with at least one character, got \"\"."));
      }
      return pattern;
    }
    if (member.key() == "Regex" && member->is_string()) {
      pattern.regex_.emplace(pcre_from_oniguruma(member->get_ref<const std::string&>(), where),
                             where);
      return pattern;
    }
  }
  throw InputError(str(where, ": expected {\"String\": ...} or {\"Regex\": ...}, got ",
                       type_name_of(value), "."));
}

std::vector<TextRange> TextPattern::find_all(std::string_view text) const {
  if (regex_) return regex_->find_all(text);
  std::vector<TextRange> matches;
  size_t begin = text.find(plain_text_);
  while (begin != std::string_view::npos) {
    matches.push_back({begin, begin + plain_text_.size()});
    begin = text.find(plain_text_, begin + plain_text_.size());
  }
  return matches;
}

}  // namespace halley
