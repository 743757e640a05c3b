// Finds the name that somebody probably meant, for messages.
#pragma once

#include <span>
#include <string_view>

namespace halley {

/// The candidate that the fewest edits (a byte inserted, removed, replaced, or two swapped; upper
/// and lower case count as equal) make of `name`; empty if that takes more than a third of its
/// bytes, or if `name` has more than 64.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace halley
