// Python's arithmetic on template values. Integers beyond 64 bits are an error, never a wrap.
#pragma once

#include "halley/checkpoint/chat_template/runtime.h"

namespace halley::jinja {

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

/// Throws as Python would: unsupported operand types, division by zero, overflow.
Value apply_operator(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right);

/// -value and +value.
Value negate(Runtime& runtime, const Value& value);
Value posit(const Value& value);

/// Rounds half to even at `num_digits` behind the point (negative: before it), as round() does.
double round_half_even(double value, int64_t num_digits);

/// The integer that int() makes of a number. Throws where it does not fit 64 bits.
int64_t truncated(double value);

}  // namespace halley::jinja
