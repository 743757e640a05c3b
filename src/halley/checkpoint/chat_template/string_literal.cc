#include "halley/checkpoint/chat_template/string_literal.h"

#include <array>
#include <cstdint>
#include <cstdio>

#include "halley/base/str.h"
#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Unescaper {
 public:
  explicit Unescaper(std::string_view body) : body_(body) {}

  UnescapedString run() {
    while (at_ < body_.size() && out_.error.empty()) {
      if (body_[at_] != '\\') {
        out_.text += body_[at_++];
      } else {
        ++at_;
        read_escape();
      }
    }
    return std::move(out_);
  }

 private:
  void read_escape();
  void read_octal();
  void read_hex(char letter, size_t num_digits);
  void read_unicode_behind_backslash();

  std::string_view body_;
  size_t at_ = 0;
  UnescapedString out_;
};

void Unescaper::read_octal() {
  uint32_t value = 0;
  for (int i = 0; i < 3 && at_ < body_.size() && body_[at_] >= '0' && body_[at_] <= '7'; ++i) {
    value = value * 8 + static_cast<uint32_t>(body_[at_++] - '0');
  }
  append_code_point(out_.text, value);
}

void Unescaper::read_hex(char letter, size_t num_digits) {
  uint32_t value = 0;
  for (size_t i = 0; i < num_digits; ++i) {
    const int digit = at_ < body_.size() ? hex_value(body_[at_]) : -1;
    if (digit < 0) {
      out_.error = str("the escape \\", letter, " needs ", num_digits, " hexadecimal digits");
      return;
    }
    value = value * 16 + static_cast<uint32_t>(digit);
    ++at_;
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    out_.error = str("the escape \\", letter, " gives no Unicode character");
    return;
  }
  append_code_point(out_.text, value);
}

// Jinja escapes what is not ASCII before it reads escapes, so that a backslash before such a
// character escapes the backslash of that escape.
void Unescaper::read_unicode_behind_backslash() {
  const uint32_t c = next_code_point(body_, at_);
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(),
                c < 0x100     ? "\\x%02x"
                : c < 0x10000 ? "\\u%04x"
                              : "\\U%08x",
                c);
  out_.text += buffer.data();
}

void Unescaper::read_escape() {
  if (at_ >= body_.size()) {
    out_.error = "a string ends with a backslash";
    return;
  }
  const char c = body_[at_];
  if (static_cast<uint8_t>(c) >= 0x80) return read_unicode_behind_backslash();
  if (c >= '0' && c <= '7') return read_octal();
  ++at_;
  switch (c) {
    case '\n':
      return;  // continues on the next line
    case '\\':
    case '\'':
    case '"':
      out_.text += c;
      return;
    case 'a':
      out_.text += '\a';
      return;
    case 'b':
      out_.text += '\b';
      return;
    case 'f':
      out_.text += '\f';
      return;
    case 'n':
      out_.text += '\n';
      return;
    case 'r':
      out_.text += '\r';
      return;
    case 't':
      out_.text += '\t';
      return;
    case 'v':
      out_.text += '\v';
      return;
    case 'x':
      return read_hex(c, 2);
    case 'u':
      return read_hex(c, 4);
    case 'U':
      return read_hex(c, 8);
    case 'N':
      out_.error = "the escape \\N{...} is not supported: write \\uXXXX";
      return;
    default:
      out_.text += '\\';
      out_.text += c;
  }
}

}  // namespace

UnescapedString unescape_string(std::string_view body) { return Unescaper(body).run(); }

}  // namespace halley::jinja
