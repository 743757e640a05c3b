// Regular expressions of tokenizer.json are in Oniguruma's Ruby syntax; PCRE2 runs them. This
// translates what differs.
#pragma once

#include <string>
#include <string_view>

namespace halley {

/// The PCRE2 pattern (for PCRE2_UTF, PCRE2_MULTILINE, newline LF) that matches what Oniguruma
/// matches: sets of sets, \w \d \s \h \b over Unicode, {n}? and {n,m}+, (?i) up to the end of its
/// group, (?m) for a dot that matches newlines, property names. Not the same: multi-character case
/// folding. Throws UnsupportedError, naming the construct, for what it does not know, InputError
/// for what is no pattern.
std::string pcre_from_oniguruma(std::string_view pattern, const std::string& where);

}  // namespace halley
