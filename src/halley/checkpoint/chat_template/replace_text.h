// str.replace.
#pragma once

#include <string>
#include <string_view>

#include "halley/checkpoint/chat_template/runtime.h"

namespace halley::jinja {

/// text.replace(old, by, count); a negative count is none. Within the limit of strings.
std::string replace_text(Runtime& runtime, std::string_view text, std::string_view old,
                         std::string_view by, int64_t count);

}  // namespace halley::jinja
