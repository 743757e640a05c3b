// How filters order values: by attributes, with or without regard to case.
#pragma once

#include <vector>

#include "halley/checkpoint/chat_template/access.h"

namespace halley::jinja {

/// The paths of `attribute`, which commas divide; one empty path where there is none.
std::vector<AttributePath> split_paths(Runtime& runtime, const Value& attribute);

/// The value by which it is ordered.
Value sort_key(Runtime& runtime, const Value& value, bool ignores_case);

/// The positions of the keys in ascending (descending) order, equal ones in their given order.
std::vector<size_t> sorted_order(Runtime& runtime, const std::vector<Value>& keys,
                                 bool is_descending);

}  // namespace halley::jinja
