// Numbers read from text, as int() and float() of Python read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace halley::jinja {

/// float(text): spaces around, "inf", "nan" and underscores between digits are allowed.
std::optional<double> parse_float(std::string_view text);

/// The result of int(text, base): the number, that it is none, or that it does not fit 64 bits.
struct ParsedInteger {
  std::optional<int64_t> value;
  bool is_too_large = false;
};

/// int(text, base) for base 0 (as the prefix says) or 2 to 36.
ParsedInteger parse_integer(std::string_view text, int base);

}  // namespace halley::jinja
