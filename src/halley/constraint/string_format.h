// The formats of strings that JSON Schema names, as patterns.
#pragma once

#include <string>
#include <string_view>

namespace halley {

/// A pattern (pattern.h), anchored, whose texts have the format; empty where it is not done.
/// date, time and date-time are RFC 3339 without leap seconds, uuid RFC 4122, ipv4 RFC 2673; email
/// is the part of RFC 5321 that has no quotes and no addresses as numbers.
std::string pattern_of_format(std::string_view format);

/// "date, time, ..." for messages.
std::string names_of_formats();

}  // namespace halley
