// A grammar of the decimal integers of a range.
#pragma once

#include <cstdint>
#include <optional>

#include "halley/constraint/grammar.h"

namespace halley {

/// The most digits of an integer, and of each part of a number: so that a model cannot write digits
/// for ever, and every number fits an int64 or a double.
constexpr int32_t kIntegerDigitsMax = 18;

/// Integers without leading zeros, at most kIntegerDigitsMax digits, no "-0"; a missing bound is
/// unlimited. Returns nothing() for an empty range. Bounds beyond 18 digits count as the largest
/// integer of 18 digits.
ExprId integer_range(GrammarBuilder& builder, std::optional<int64_t> min,
                     std::optional<int64_t> max);

}  // namespace halley
