#include "halley/checkpoint/tokenizer/byte_level.h"

#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

constexpr uint32_t kNumCodes = 0x144;  // 256 + the 68 bytes that are not visible in Latin-1

struct Alphabet {
  std::array<uint16_t, 256> code_of_byte{};
  std::array<int16_t, kNumCodes> byte_of_code{};
};

constexpr bool is_visible(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of_code) byte = -1;
  uint16_t next_code = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint16_t code = is_visible(byte) ? static_cast<uint16_t>(byte) : next_code++;
    alphabet.code_of_byte[byte] = code;
    alphabet.byte_of_code[code] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

void append_byte_level(std::string& text, std::string_view bytes) {
  for (const char c : bytes) {
    const uint32_t code = kAlphabet.code_of_byte[static_cast<uint8_t>(c)];
    if (code < 0x80) {
      text.push_back(static_cast<char>(code));
    } else {
      const char two[2] = {static_cast<char>(0xC0 | code >> 6),
                           static_cast<char>(0x80 | (code & 63))};
      text.append(two, 2);
    }
  }
}

std::optional<std::string> bytes_of_byte_level(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const Utf8Char next = first_char(token);
    if (next.code >= kNumCodes || kAlphabet.byte_of_code[next.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of_code[next.code]));
    token.remove_prefix(next.num_bytes);
  }
  return bytes;
}

}  // namespace halley
