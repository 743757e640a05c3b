// Messages about fields of a configuration that are well-formed and cannot be used.
#pragma once

#include <string>
#include <string_view>

#include "halley/checkpoint/config/hf_config.h"

namespace halley {

/// "quantization_config.ignore"
std::string field_path(const HfConfig& config, std::string_view field);

/// The value of a field for a message: "\"int\"", "3", "an array of 2"; "nothing" where absent.
std::string shown_value(const HfConfig& config, std::string_view field);

/// Throws UnsupportedError "<file>: field '<path>': expected <expected>, got <value>. <advice>".
[[noreturn]] void reject_field(const HfConfig& config, std::string_view field,
                               const std::string& expected, const std::string& advice);

/// Throws InputError with the same text.
[[noreturn]] void fail_field(const HfConfig& config, std::string_view field,
                             const std::string& expected, const std::string& advice);

/// Throws UnsupportedError "<file>: field '<path>': <text>".
[[noreturn]] void reject_as(const HfConfig& config, std::string_view field,
                            const std::string& text);

/// The name under which the field is present, of its two names; the first if neither is. Throws
/// InputError where both are present and differ.
const char* declared_name(const HfConfig& config, const char* name, const char* synonym);

/// ASCII letters in lower case.
std::string lower_case(std::string text);

}  // namespace halley
