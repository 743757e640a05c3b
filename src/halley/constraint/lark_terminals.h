// The terminals that a Lark grammar may import from "common".
#pragma once

#include <string_view>

namespace halley {

/// The regular expression of a terminal, as "INT"; empty where there is none of this name.
std::string_view imported_terminal(std::string_view name);

}  // namespace halley
