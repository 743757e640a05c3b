// The byte-level alphabet of GPT-2: each of the 256 bytes has a visible character.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace halley {

/// Appends the characters that stand for `bytes`.
void append_byte_level(std::string& text, std::string_view bytes);

/// The bytes that the characters of `token` stand for, or nothing where one stands for no byte.
std::optional<std::string> bytes_of_byte_level(std::string_view token);

}  // namespace halley
