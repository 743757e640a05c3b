#include "halley/checkpoint/chat_template/number_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {
namespace {

constexpr int kPrecisionMax = 500;

std::string digits_in_base(uint64_t magnitude, unsigned base, bool is_upper) {
  const char* digits = is_upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string text;
  do {
    text += digits[magnitude % base];
    magnitude /= base;
  } while (magnitude > 0);
  return {text.rbegin(), text.rend()};
}

// Commas between groups of three digits before the point.
std::string with_commas(const std::string& text) {
  size_t num_digits = 0;
  while (num_digits < text.size() && text[num_digits] >= '0' && text[num_digits] <= '9') {
    ++num_digits;
  }
  std::string out;
  for (size_t i = 0; i < num_digits; ++i) {
    if (i > 0 && (num_digits - i) % 3 == 0) out += ',';
    out += text[i];
  }
  return out + text.substr(num_digits);
}

std::string sign_text(bool is_negative, char sign) {
  if (is_negative) return "-";
  if (sign == '-') return {};
  return std::string(1, sign);
}

}  // namespace

NumberText format_integer(int64_t value, const NumberFormat& format) {
  const bool is_negative = value < 0;
  const uint64_t magnitude =
      is_negative ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  NumberText number;
  number.text = sign_text(is_negative, format.sign);
  const char lower = static_cast<char>(format.type | 0x20);
  const unsigned base = lower == 'x' ? 16 : lower == 'o' ? 8 : lower == 'b' ? 2 : 10;
  if (format.is_alternate && base != 10) number.text += str('0', format.type);
  number.sign_size = number.text.size();
  std::string digits = digits_in_base(magnitude, base, format.type == 'X');
  if (format.precision > kPrecisionMax) {
    fail("a format's precision is over the limit of ", kPrecisionMax);
  }
  if (format.precision > static_cast<int>(digits.size())) {
    digits.insert(0, static_cast<size_t>(format.precision) - digits.size(), '0');
  }
  number.text += format.has_commas ? with_commas(digits) : digits;
  return number;
}

NumberText format_float(double value, const NumberFormat& format) {
  if (format.precision > kPrecisionMax) {
    fail("a format's precision is over the limit of ", kPrecisionMax);
  }
  const bool is_percent = format.type == '%';
  if (is_percent) value *= 100.0;
  NumberText number;
  number.text = sign_text(std::signbit(value) && !std::isnan(value), format.sign);
  number.sign_size = number.text.size();
  const std::string pattern =
      str('%', format.is_alternate ? "#" : "", ".*", is_percent ? 'f' : format.type);
  std::array<char, 1024> buffer{};  // 309 digits of the largest double and kPrecisionMax behind
  std::snprintf(buffer.data(), buffer.size(), pattern.c_str(),
                format.precision < 0 ? 6 : format.precision, std::abs(value));
  std::string digits = buffer.data();
  number.text += format.has_commas ? with_commas(digits) : digits;
  if (is_percent) number.text += '%';
  return number;
}

std::string pad(Runtime& runtime, const NumberText& number, size_t width, char align,
                std::string_view fill) {
  const size_t length = count_code_points(number.text);
  if (width <= length) return number.text;
  const size_t missing = width - length;
  runtime.check_string_size(missing);
  runtime.check_string_size(number.text.size() + missing * fill.size());
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  if (align == '=') out = number.text.substr(0, number.sign_size);
  for (size_t i = 0; i < left; ++i) out += fill;
  out += align == '=' ? number.text.substr(number.sign_size) : number.text;
  for (size_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace halley::jinja
