// The string formats of JSON Schema and of Pydantic, as patterns.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace halley {

/// A pattern (pattern.h), anchored, whose texts have the format: empty where it may be any text,
/// none if unsupported. date, time and date-time are RFC 3339 without leap seconds, uuid RFC 4122,
/// ipv4 RFC 2673, ipv6 RFC 4291, uri RFC 3986; email is RFC 5321 without quotes and numeric
/// addresses.
std::optional<std::string> pattern_of_format(std::string_view format);

/// "date, time, ..." for messages.
std::string names_of_formats();

}  // namespace halley
