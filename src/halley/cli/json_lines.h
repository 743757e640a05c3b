// Reads one JSON object per line and writes one JSON object per line.
#pragma once

#include <functional>
#include <istream>
#include <ostream>

#include "halley/json/json.h"

namespace halley::cli {

/// Longest line that is accepted.
inline constexpr size_t kJsonLineBytesMax = size_t{64} << 20;

/// Calls `answer` for every line of `in` that is not blank and writes what it returns as one line.
/// Throws InputError with the line's number if a line is no JSON object or too long;
/// InputErrors of `answer` get the number too.
void for_each_json_line(std::istream& in, std::ostream& out,
                        const std::function<OrderedJson(const OrderedJson& request)>& answer);

}  // namespace halley::cli
