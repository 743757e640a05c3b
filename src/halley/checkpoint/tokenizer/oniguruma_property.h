// Translates character types and property names of Oniguruma to PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace halley {

/// A set of characters: what stands between the brackets of a PCRE2 character class.
struct PropertySet {
  std::string items;
  bool is_negated = false;
};

/// \d \w \s \h and their complements in capitals. `type` is one of these letters.
PropertySet onig_type_set(char type);

/// The name between the braces of \p{...}; a leading ^ negates. Throws InputError for an unknown
/// one.
PropertySet onig_property_set(std::string_view name, const std::string& where);

}  // namespace halley
