#include "halley/base/str.h"

#include <array>
#include <cstdint>
#include <cstdio>

namespace halley {
namespace {

// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

void append_escaped(std::string& out, uint8_t byte) {
  std::array<char, 8> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "\\x%02x", byte);
  out += buffer.data();
}

}  // namespace

std::string quote(std::string_view text, size_t num_bytes_max) {
  std::string out = "\"";
  size_t i = 0;
  while (i < text.size() && i < num_bytes_max) {
    const char c = text[i];
    const size_t length = utf8_length(text.substr(i));
    if (c == '\n') {
      out += "\\n";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (length == 0 || static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      append_escaped(out, static_cast<uint8_t>(c));
    } else {
      out += text.substr(i, length);
      i += length - 1;
    }
    ++i;
  }
  out += i < text.size() ? "\"..." : "\"";
  return out;
}

std::string format_bytes(double num_bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (num_bytes >= 999.95 && unit + 1 < kUnits.size()) {
    num_bytes /= 1000;
    ++unit;
  }
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), unit == 0 ? "%.0f %s" : "%.1f %s", num_bytes,
                kUnits[unit]);
  return buffer.data();
}

}  // namespace halley
