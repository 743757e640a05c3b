// The escapes of string literals.
#pragma once

#include <string>
#include <string_view>

namespace halley::jinja {

struct UnescapedString {
  std::string text;
  std::string error;  // empty where all is well
};

/// Reads the text between the quotes of a literal as Python's "unicode-escape" codec does.
UnescapedString unescape_string(std::string_view body);

}  // namespace halley::jinja
