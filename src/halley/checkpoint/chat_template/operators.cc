#include "halley/checkpoint/chat_template/operators.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "halley/base/checked_math.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/printf_format.h"

namespace halley::jinja {
namespace {

const char* symbol_of(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "?";
}

[[noreturn]] void fail_types(BinaryOperator op, const Value& left, const Value& right) {
  check_defined(left);
  check_defined(right);
  if (op == BinaryOperator::kAdd && left.is_string()) {
    fail("can only concatenate str (not \"", type_name_of(right.kind()), "\") to str");
  }
  if (op == BinaryOperator::kAdd && left.is_sequence()) {
    fail("can only concatenate ", type_name_of(left.kind()), " (not \"", type_name_of(right.kind()),
         "\") to ", type_name_of(left.kind()));
  }
  fail("unsupported operand type(s) for ", symbol_of(op), ": '", type_name_of(left.kind()),
       "' and '", type_name_of(right.kind()), "'");
}

Value checked(BinaryOperator op, std::optional<int64_t> result) {
  if (!result) fail("the result of ", symbol_of(op), " does not fit a 64-bit integer");
  return Value::integer(*result);
}

int64_t floor_divide(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

double floor_divide(double left, double right) {
  const double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0.0 && (right < 0.0) != (rest < 0.0)) quotient -= 1.0;
  if (quotient == 0.0) return std::copysign(0.0, left / right);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

double modulo(double left, double right) {
  const double rest = std::fmod(left, right);
  if (rest == 0.0) return std::copysign(0.0, right);
  return (right < 0.0) != (rest < 0.0) ? rest + right : rest;
}

std::optional<int64_t> integer_power(int64_t base, int64_t exponent) {
  std::optional<int64_t> result = 1;
  std::optional<int64_t> factor = base;
  while (exponent > 0 && result) {
    if (exponent % 2 == 1) {
      if (!factor) return std::nullopt;
      result = checked_mul(*result, *factor);
    }
    exponent /= 2;
    if (factor) factor = checked_mul(*factor, *factor);
  }
  return result;
}

Value float_power(double base, double exponent) {
  if (base == 0.0 && exponent < 0.0) fail("0.0 cannot be raised to a negative power");
  if (base < 0.0 && std::isfinite(exponent) && exponent != std::floor(exponent)) {
    fail("a negative number to a fractional power is a complex number, which is not supported");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    fail("the result of ** is too large");
  }
  return Value::real(result);
}

Value apply_to_integers(BinaryOperator op, int64_t left, int64_t right) {
  switch (op) {
    case BinaryOperator::kAdd:
      return checked(op, checked_add(left, right));
    case BinaryOperator::kMultiply:
      return checked(op, checked_mul(left, right));
    case BinaryOperator::kSubtract: {
      int64_t result = 0;
      const bool overflows = __builtin_sub_overflow(left, right, &result);
      return checked(op, overflows ? std::nullopt : std::optional<int64_t>(result));
    }
    case BinaryOperator::kPower:
      if (right >= 0) return checked(op, integer_power(left, right));
      return float_power(static_cast<double>(left), static_cast<double>(right));
    default:
      break;
  }
  if (right == 0)
    fail(op == BinaryOperator::kModulo   ? "integer modulo by zero"
         : op == BinaryOperator::kDivide ? "division by zero"
                                         : "integer division or modulo by zero");
  if (op == BinaryOperator::kDivide) {
    // 64 bits of mantissa hold both exactly: one rounding, as Python's true division.
    return Value::real(
        static_cast<double>(static_cast<long double>(left) / static_cast<long double>(right)));
  }
  if (right == -1) {  // INT64_MIN / -1 does not fit
    if (op == BinaryOperator::kModulo) return Value::integer(0);
    return checked(op, checked_mul(left, int64_t{-1}));
  }
  if (op == BinaryOperator::kFloorDivide) return Value::integer(floor_divide(left, right));
  return Value::integer(left - floor_divide(left, right) * right);
}

Value apply_to_floats(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::real(left + right);
    case BinaryOperator::kSubtract:
      return Value::real(left - right);
    case BinaryOperator::kMultiply:
      return Value::real(left * right);
    case BinaryOperator::kPower:
      return float_power(left, right);
    default:
      break;
  }
  if (right == 0.0)
    fail("float ", op == BinaryOperator::kModulo ? "modulo" : "division", " by zero");
  if (op == BinaryOperator::kDivide) return Value::real(left / right);
  if (op == BinaryOperator::kFloorDivide) return Value::real(floor_divide(left, right));
  return Value::real(modulo(left, right));
}

Value repeat(Runtime& runtime, const Value& sequence, int64_t count) {
  const size_t size = sequence.is_string() ? sequence.text().size() : sequence.items().size();
  const size_t times = count > 0 && size > 0 ? static_cast<size_t>(count) : 0;
  const size_t total = checked_mul(size, times).value_or(SIZE_MAX);
  if (sequence.is_string()) {
    runtime.check_string_size(total);
    std::string text;
    text.reserve(total);
    for (size_t i = 0; i < times; ++i) text += sequence.text();
    return runtime.string(std::move(text));
  }
  runtime.check_num_items(total);
  std::vector<Value> items;
  items.reserve(total);
  for (size_t i = 0; i < times; ++i) {
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  return sequence.is(Kind::kTuple) ? runtime.tuple(std::move(items))
                                   : runtime.list(std::move(items));
}

Value join_sequences(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_string()) {
    runtime.check_string_size(left.text().size() + right.text().size());
    return runtime.string(left.text() + right.text());
  }
  runtime.check_num_items(left.items().size() + right.items().size());
  std::vector<Value> items;
  items.reserve(left.items().size() + right.items().size());
  items.insert(items.end(), left.items().begin(), left.items().end());
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(Kind::kTuple) ? runtime.tuple(std::move(items)) : runtime.list(std::move(items));
}

bool is_repeatable(const Value& value) { return value.is_string() || value.is_sequence(); }

}  // namespace

Value apply_operator(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return apply_to_integers(op, left.as_int(), right.as_int());
  }
  if (left.is_number() && right.is_number()) {
    return apply_to_floats(op, left.as_double(), right.as_double());
  }
  check_defined(left);
  check_defined(right);
  if (op == BinaryOperator::kModulo && left.is_string()) {
    return printf_format(runtime, left.text(), right);
  }
  if (op == BinaryOperator::kAdd && left.kind() == right.kind() && is_repeatable(left)) {
    return join_sequences(runtime, left, right);
  }
  if (op == BinaryOperator::kMultiply && is_repeatable(left) && right.is_integral()) {
    return repeat(runtime, left, right.as_int());
  }
  if (op == BinaryOperator::kMultiply && left.is_integral() && is_repeatable(right)) {
    return repeat(runtime, right, left.as_int());
  }
  fail_types(op, left, right);
}

Value negate(Runtime& runtime, const Value& value) {
  if (value.is_integral()) {
    return apply_operator(runtime, BinaryOperator::kSubtract, Value::integer(0), value);
  }
  if (value.is(Kind::kFloat)) return Value::real(-value.as_double());
  check_defined(value);
  fail("bad operand type for unary -: '", type_name_of(value.kind()), "'");
}

Value posit(const Value& value) {
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is(Kind::kFloat)) return value;
  check_defined(value);
  fail("bad operand type for unary +: '", type_name_of(value.kind()), "'");
}

double round_half_even(double value, int64_t num_digits) {
  constexpr int64_t kDigitsMax = 340;  // beyond the digits of any double
  if (!std::isfinite(value) || num_digits > kDigitsMax) return value;
  if (num_digits < -kDigitsMax) return std::copysign(0.0, value);
  if (num_digits >= 0) {
    // The C library rounds the exact decimal expansion, half to even, as Python does.
    std::array<char, 800> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(num_digits), value);
    return std::strtod(buffer.data(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-num_digits));
  const double scaled = value / scale;
  double rounded = std::round(scaled);
  if (std::abs(scaled - rounded) == 0.5) rounded = 2.0 * std::round(scaled / 2.0);
  return rounded * scale;
}

int64_t truncated(double value) {
  constexpr double kTwo63 = 9223372036854775808.0;
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (value >= kTwo63 || value < -kTwo63) fail("a number does not fit a 64-bit integer");
  return static_cast<int64_t>(value);
}

}  // namespace halley::jinja
