// UTF-8 and the few Unicode properties that tokenizer files speak of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halley {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Char {
  uint32_t code;
  size_t num_bytes;
};

/// The state of the first character of a text.
enum class Utf8State { kComplete, kIncomplete, kInvalid };

/// Looks at the first character of `bytes`, which is not empty. kIncomplete: all bytes are the
/// start of a character that goes on. Table 3-7 of the Unicode standard.
Utf8State utf8_state(std::string_view bytes);

bool is_valid_utf8(std::string_view text);

/// The first character of valid, non-empty UTF-8.
inline Utf8Char first_char(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (at(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F), 4};
}

/// The offset of the last character of valid, non-empty UTF-8.
size_t last_char_begin(std::string_view text);

void append_utf8(std::string& text, uint32_t code);

/// Bytes to text; invalid UTF-8 becomes U+FFFD, one for each longest start of a character (the
/// practice that the Unicode standard recommends in section 3.9). Works piece by piece.
class LossyUtf8 {
 public:
  /// Appends to `text` what `bytes` complete.
  void push(std::string_view bytes, std::string& text);
  /// Appends U+FFFD for an unfinished character.
  void finish(std::string& text);

 private:
  std::string pending_;  // the start of a character
};

/// White_Space of the Unicode character database.
bool is_white_space(uint32_t code);
/// General category N*.
bool is_numeric(uint32_t code);
/// General category P*, or one of the ASCII symbols that C calls punctuation.
bool is_punctuation(uint32_t code);
/// General category M*.
bool is_mark(uint32_t code);
/// General category Mn.
bool is_nonspacing_mark(uint32_t code);
/// General category C* (control, format, private use, not assigned).
bool is_other(uint32_t code);

/// Appends the lower-case form (one character may give two).
void append_lower_case(std::string& text, uint32_t code);

}  // namespace halley
