// The normalization forms of Unicode.
#pragma once

#include <string>
#include <string_view>

namespace halley {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// `text` is valid UTF-8 and may hold U+0000.
std::string to_normal_form(std::string_view text, NormalForm form);

}  // namespace halley
