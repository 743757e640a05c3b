// Python's "text % values" and str.format.
#pragma once

#include <string>
#include <string_view>

#include "halley/checkpoint/chat_template/callable.h"

namespace halley::jinja {

/// format % values. `values` is a tuple, a dictionary for %(name)s, or one value.
Value printf_format(Runtime& runtime, std::string_view format, const Value& values);

/// format.format(...): fields {}, {0}, {name}, each with ![rs] and a format specification;
/// attributes and items of fields are rejected.
Value brace_format(Runtime& runtime, std::string_view format, const Arguments& arguments);

/// format(value, specification).
std::string format_value(Runtime& runtime, const Value& value, std::string_view specification);

}  // namespace halley::jinja
