#include "halley/checkpoint/chat_template/number_text.h"

#include <charconv>
#include <cstdlib>

#include "halley/base/checked_math.h"
#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Without the underscores; nothing where one does not stand between two digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  const auto is_alphanumeric = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_alphanumeric(text[i - 1]) ||
               !is_alphanumeric(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Takes the prefix 0x, 0o or 0b off and says the base.
int take_prefix(std::string_view& text, int base) {
  if (text.size() < 2 || text[0] != '0') return base == 0 ? 10 : base;
  const char letter = static_cast<char>(text[1] | 0x20);
  const int found = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (found == 0 || (base != 0 && base != found)) return base == 0 ? 10 : base;
  text.remove_prefix(2);
  if (!text.empty() && text[0] == '_') text.remove_prefix(1);
  return found;
}

}  // namespace

std::optional<double> parse_float(std::string_view text) {
  text = strip_spaces(text);
  const std::optional<std::string> plain = without_underscores(text);
  if (!plain || plain->empty()) return std::nullopt;
  const char* begin = plain->data();
  const char* end = begin + plain->size();
  if (*begin == '+' && plain->size() > 1 && begin[1] != '-') ++begin;
  double value = 0.0;
  const auto result = std::from_chars(begin, end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (plain->back() == ')') return std::nullopt;  // "nan(...)" of the C library
  if (result.ec == std::errc::result_out_of_range) value = std::strtod(begin, nullptr);
  return value;
}

ParsedInteger parse_integer(std::string_view text, int base) {
  text = strip_spaces(text);
  bool is_negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    is_negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const bool follows_literals = base == 0;
  const size_t size_before = text.size();
  base = take_prefix(text, base);
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty()) return {};
  int64_t value = 0;
  bool is_too_large = false;
  for (const char c : *digits) {
    const int digit = digit_value(c);
    if (digit >= base) return {};
    const auto shifted = checked_mul<int64_t>(value, base);
    const auto sum = shifted ? checked_add<int64_t>(*shifted, digit) : std::nullopt;
    is_too_large = is_too_large || !sum;
    value = sum.value_or(0);
  }
  // int("010", 0) is rejected as the literal is.
  if (follows_literals && text.size() == size_before && text[0] == '0' && value != 0) return {};
  if (is_too_large) return {std::nullopt, true};
  return {is_negative ? -value : value, false};
}

}  // namespace halley::jinja
