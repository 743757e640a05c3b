// Writes JSON piece by piece: documents of hundreds of thousands of strings, and strings that
// arrive in pieces.
#pragma once

#include <string>
#include <string_view>

namespace halley {

/// Appends the bytes of a JSON string without its quotes: `text` may be any piece of the string.
/// Invalid UTF-8 stays as it is, for the parser to reject.
inline void append_json_escaped(std::string_view text, std::string& json) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (c == '\n') {
      json += "\\n";
    } else if (byte < 0x20) {
      json += "\\u00";
      json += kDigits[byte >> 4];
      json += kDigits[byte & 15];
    } else {
      json += c;
    }
  }
}

/// Appends `text` as a JSON string.
inline void append_json_string(std::string_view text, std::string& json) {
  json += '"';
  append_json_escaped(text, json);
  json += '"';
}

/// `text` as a JSON string.
inline std::string json_string(std::string_view text) {
  std::string json;
  append_json_string(text, json);
  return json;
}

}  // namespace halley
