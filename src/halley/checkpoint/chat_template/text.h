// Unicode text as Python's str sees it: code points, whitespace, letter case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halley::jinja {

/// Position of the first byte that is not valid UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

/// Code points of valid UTF-8.
size_t count_code_points(std::string_view text);

/// Reads one code point of valid UTF-8 at `position` and moves behind it.
uint32_t next_code_point(std::string_view text, size_t& position);

void append_code_point(std::string& out, uint32_t code_point);

/// Byte position of the code point `index`, or the size of the text where it has fewer.
size_t byte_position(std::string_view text, size_t index);

/// Byte position of the first (last) `needle` in `text`, at or behind `from`, or npos. In linear
/// time for every input, which std::string::find does not promise.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
size_t find_last_text(std::string_view text, std::string_view needle);

/// Python's str.isspace for one code point.
bool is_space(uint32_t code_point);
/// Line ends of str.splitlines.
bool is_line_end(uint32_t code_point);
/// Python's str.isalpha, isdecimal and isalnum (without its few other numerals) for one code point.
bool is_letter(uint32_t code_point);
bool is_decimal_digit(uint32_t code_point);
bool is_word(uint32_t code_point);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// str.capitalize: the first letter in title case, the others small.
std::string to_capitalized(std::string_view text);
/// str.title: so for every run of letters.
std::string to_title(std::string_view text);
/// str.swapcase.
std::string to_swapped_case(std::string_view text);

/// str.isupper and str.islower.
bool is_upper_text(std::string_view text);
bool is_lower_text(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
/// str.strip without an argument.
std::string_view strip_spaces(std::string_view text, Side side = Side::kBoth);
/// str.strip with a set of characters.
std::string_view strip_characters(std::string_view text, std::string_view characters, Side side);

/// str.splitlines, as views into `text`.
std::vector<std::string_view> split_lines(std::string_view text, bool keeps_ends);

}  // namespace halley::jinja
