// Literals of Python in a model's text, as JSON.
#pragma once

#include <optional>
#include <string_view>

#include "halley/json/json.h"

namespace halley {

/// The value of a string, a number, True, False, None, a list, a tuple or a dict with string keys,
/// also with JSON's names of the constants; nothing if `text` is none of them, or is nested more
/// than 32 levels deep. `text` is untrusted.
std::optional<OrderedJson> parse_python_literal(std::string_view text);

}  // namespace halley
