// Grammars of the decimal numbers of a range, and of the multiples of a number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "halley/constraint/grammar.h"

namespace halley {

/// The most digits of an integer, and of each part of a number: so that a model cannot write digits
/// for ever, and every number fits an int64 or a double.
constexpr int32_t kIntegerDigitsMax = 18;

/// A number with its digits, as JSON has it.
struct Decimal {
  /// Integer parts are cut to this: no number has more than kIntegerDigitsMax digits.
  static constexpr int64_t kIntegerMax = 1'000'000'000'000'000'000;

  bool is_negative = false;
  int64_t integer = 0;        // without the sign
  std::string fraction = {};  // digits behind the point, at most kIntegerDigitsMax, the last not 0
  bool is_cut = false;        // there were more digits behind the point

  /// `number` is a number of RFC 8259.
  static Decimal of(std::string_view number);
};

/// A bound of a number; an exclusive one is not itself in the range.
struct DecimalBound {
  Decimal value;
  bool is_exclusive = false;
};

/// Whether `a` leaves fewer numbers than `b`, as upper bounds or as lower ones.
bool is_tighter(const DecimalBound& a, const DecimalBound& b, bool is_upper);

/// The largest integer up to a bound, or the smallest one from a bound on.
int64_t integer_within(const DecimalBound& bound, bool is_upper);

/// Integers without leading zeros, at most kIntegerDigitsMax digits, no "-0"; a missing bound is
/// unlimited. Returns nothing() for an empty range. Bounds beyond 18 digits count as the largest
/// integer of 18 digits.
ExprId integer_range(GrammarBuilder& builder, std::optional<int64_t> min,
                     std::optional<int64_t> max);

/// Numbers without an exponent, at most kIntegerDigitsMax digits before and behind the point.
ExprId decimal_range(GrammarBuilder& builder, const std::optional<DecimalBound>& min,
                     const std::optional<DecimalBound>& max);

/// Largest divisor of multiples(), without the zeros at its end.
constexpr int64_t kDivisorMax = 4096;

/// Numbers without an exponent that are `divisor`, which is not 0, times an integer, with any
/// digits before the point and no more behind it than the divisor has: to be intersected with a
/// range. Nothing is returned where the divisor is above kDivisorMax.
std::optional<ExprId> multiples(GrammarBuilder& builder, const Decimal& divisor);

}  // namespace halley
