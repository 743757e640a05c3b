// Regular expressions of tokenizer.json are in Oniguruma's Ruby syntax; PCRE2 runs them. This
// translates what differs.
//
// libonig itself is no replacement, although version 6.9.8 gave the ids of all goldens:
// - Its limits count retries, and a loop without backtracking makes none. It turns `a*[bc]` into
//   such a loop by itself: `a*[bc]|(?!a)` took 14.5 s of CPU time on 100,000 letters a, with both
//   retry limits at 5,000,000, and four times that on twice the text. A running match cannot be
//   stopped by time. PCRE2's can, by callouts (pcre.h; the tests of PcrePattern).
// - The split patterns of Llama 3 and GPT-2 run 3 to 6 times slower than by PCRE2's JIT on 1 MB of
//   English or code, 8 to 13 times on Chinese; encoding as a whole takes 1.3 to 2.1 times as long
//   (AMD EPYC, one core).
// - It accepts what no tokenizer needs and what costs most: (?~...), \g<name> and \K.
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
