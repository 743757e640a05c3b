// str.split and its relatives.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace halley::jinja {

/// text.split(separator, num_splits_max), or rsplit where `from_right`. A negative maximum is none.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t num_splits_max, bool from_right);

/// The same at runs of whitespace, which are dropped at both ends.
std::vector<std::string_view> split_at_spaces(std::string_view text, int64_t num_splits_max,
                                              bool from_right);

}  // namespace halley::jinja
