#include "halley/checkpoint/tokenizer/oniguruma_property.h"

#include <algorithm>
#include <array>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/pcre.h"

namespace halley {
namespace {

constexpr std::string_view kWhiteSpace =
    "\\x09-\\x0d \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

struct NamedSet {
  std::string_view name;  // lower case, without spaces, hyphens and underscores
  std::string_view items;
};

constexpr std::array kNamedSets = {
    NamedSet{"any", "\\p{Any}"},
    NamedSet{"assigned", "\\P{Cn}"},
    NamedSet{"alpha", "\\p{Alphabetic}"},
    NamedSet{"digit", "\\p{Nd}"},
    NamedSet{"alnum", "\\p{Alphabetic}\\p{Nd}"},
    NamedSet{"upper", "\\p{Uppercase}"},
    NamedSet{"lower", "\\p{Lowercase}"},
    NamedSet{"space", kWhiteSpace},
    NamedSet{"whitespace", kWhiteSpace},
    NamedSet{"word", kWord},
    NamedSet{"xdigit", kHexDigit},
    NamedSet{"cntrl", "\\p{Cc}"},
    NamedSet{"punct", "\\p{P}$+<=>\\^`|~"},
    NamedSet{"blank", "\\t\\p{Zs}"},
    NamedSet{"letter", "\\p{L}"},
    NamedSet{"lc", "\\p{Lu}\\p{Ll}\\p{Lt}"},
    NamedSet{"casedletter", "\\p{Lu}\\p{Ll}\\p{Lt}"},
    NamedSet{"uppercaseletter", "\\p{Lu}"},
    NamedSet{"lowercaseletter", "\\p{Ll}"},
    NamedSet{"titlecaseletter", "\\p{Lt}"},
    NamedSet{"modifierletter", "\\p{Lm}"},
    NamedSet{"otherletter", "\\p{Lo}"},
    NamedSet{"mark", "\\p{M}"},
    NamedSet{"nonspacingmark", "\\p{Mn}"},
    NamedSet{"spacingmark", "\\p{Mc}"},
    NamedSet{"enclosingmark", "\\p{Me}"},
    NamedSet{"number", "\\p{N}"},
    NamedSet{"decimalnumber", "\\p{Nd}"},
    NamedSet{"letternumber", "\\p{Nl}"},
    NamedSet{"othernumber", "\\p{No}"},
    NamedSet{"punctuation", "\\p{P}"},
    NamedSet{"connectorpunctuation", "\\p{Pc}"},
    NamedSet{"dashpunctuation", "\\p{Pd}"},
    NamedSet{"openpunctuation", "\\p{Ps}"},
    NamedSet{"closepunctuation", "\\p{Pe}"},
    NamedSet{"initialpunctuation", "\\p{Pi}"},
    NamedSet{"finalpunctuation", "\\p{Pf}"},
    NamedSet{"otherpunctuation", "\\p{Po}"},
    NamedSet{"symbol", "\\p{S}"},
    NamedSet{"mathsymbol", "\\p{Sm}"},
    NamedSet{"currencysymbol", "\\p{Sc}"},
    NamedSet{"modifiersymbol", "\\p{Sk}"},
    NamedSet{"othersymbol", "\\p{So}"},
    NamedSet{"separator", "\\p{Z}"},
    NamedSet{"spaceseparator", "\\p{Zs}"},
    NamedSet{"lineseparator", "\\p{Zl}"},
    NamedSet{"paragraphseparator", "\\p{Zp}"},
    NamedSet{"other", "\\p{C}"},
    NamedSet{"control", "\\p{Cc}"},
    NamedSet{"format", "\\p{Cf}"},
    NamedSet{"unassigned", "\\p{Cn}"},
    NamedSet{"privateuse", "\\p{Co}"},
};

constexpr std::array<std::string_view, 36> kCategories = {
    "l",  "lu", "ll", "lt", "lm", "lo", "m",  "mn", "mc", "me", "n",  "nd",
    "nl", "no", "p",  "pc", "pd", "ps", "pe", "pi", "pf", "po", "s",  "sm",
    "sc", "sk", "so", "z",  "zs", "zl", "zp", "c",  "cc", "cf", "cn", "co"};

// Property names are compared without case, spaces, hyphens and underscores.
std::string simplified(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_plain = is_upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!is_plain) return {};
    result.push_back(is_upper ? static_cast<char>(c - 'A' + 'a') : c);
  }
  return result;
}

std::string items_of_name(const std::string& name) {
  for (const NamedSet& set : kNamedSets) {
    if (set.name == name) return std::string(set.items);
  }
  if (std::find(kCategories.begin(), kCategories.end(), name) != kCategories.end()) {
    std::string category = name;
    category[0] = static_cast<char>(category[0] - 'a' + 'A');
    return str("\\p{", category, "}");
  }
  // In Oniguruma a script's name is the Script property, in PCRE2 alone it is Script_Extensions.
  for (const std::string& candidate : {str("\\p{sc:", name, "}"), str("\\p{", name, "}")}) {
    if (pcre_accepts(candidate)) return candidate;
  }
  return {};
}

}  // namespace

PropertySet onig_type_set(char type) {
  switch (type) {
    case 'd':
      return {"\\p{Nd}", false};
    case 'D':
      return {"\\p{Nd}", true};
    case 's':
      return {std::string(kWhiteSpace), false};
    case 'S':
      return {std::string(kWhiteSpace), true};
    case 'h':
      return {std::string(kHexDigit), false};
    case 'H':
      return {std::string(kHexDigit), true};
    case 'w':
      return {std::string(kWord), false};
    default:
      return {std::string(kWord), true};
  }
}

PropertySet onig_property_set(std::string_view name, const std::string& where) {
  PropertySet set;
  std::string_view bare = name;
  if (!bare.empty() && bare[0] == '^') {
    set.is_negated = true;
    bare.remove_prefix(1);
  }
  const std::string simple = simplified(bare);
  if (!simple.empty() && simple.size() <= 64) set.items = items_of_name(simple);
  if (set.items.empty()) {
    throw InputError(str(where,
                         ": expected a Unicode property between the braces of \\p{...}, got ",
                         quote(name), "."));
  }
  return set;
}

}  // namespace halley
