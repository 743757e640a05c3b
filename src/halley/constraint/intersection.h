// Intersections and differences of regular languages: a pattern of some length, a format and a
// pattern, a multiple within bounds, a pattern with look-ahead.
//
// Grammars are stacks of counted parts, which have no intersection; so those of regular languages
// are run together here, and what they run through becomes rules: one for each state.
#pragma once

#include <span>

#include "halley/constraint/grammar.h"

namespace halley {

/// The texts that all grammars of `in` have, which is not empty, and none of `not_in` has. Uses up
/// builder.intersection_budget(); throws UnsupportedError where that is too small.
ExprId intersection_of(GrammarBuilder& builder, std::span<const Grammar> in,
                       std::span<const Grammar> not_in = {});

}  // namespace halley
