// Cuts a text at delimiters and keeps, joins or drops them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "halley/checkpoint/tokenizer/pcre.h"

namespace halley {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// "Removed", "Isolated", ...; throws InputError for another name.
SplitBehavior parse_split_behavior(const std::string& name, const std::string& where);

/// Cuts a text of `num_bytes` at `matches`, which are in order and do not overlap. With `invert`
/// the text between the matches is the delimiter. Appends the parts, in order, none of them empty.
void cut_at_matches(const std::vector<TextRange>& matches, size_t num_bytes, SplitBehavior behavior,
                    bool invert, std::vector<TextRange>& parts);

}  // namespace halley
