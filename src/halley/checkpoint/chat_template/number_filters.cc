// Implements the filters that return numbers.
#include <cmath>

#include "halley/checkpoint/chat_template/builtin_tables.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/number_text.h"
#include "halley/checkpoint/chat_template/operators.h"

namespace halley::jinja {
namespace {

Value to_integer(Runtime& runtime, const Value& self, Call& call) {
  const Value otherwise = call.was_given(0) ? call.get(0) : Value::integer(0);
  if (self.is_undefined()) fail_undefined(self);
  if (self.is_integral()) return Value::integer(self.as_int());
  std::optional<double> number;
  if (self.is(Kind::kFloat)) {
    number = self.as_double();
  } else if (self.is_string()) {
    runtime.step_bytes(self.text().size() * 8);
    const int64_t base = call.integer(1, 10);
    if (base != 0 && (base < 2 || base > 36)) return otherwise;
    const ParsedInteger parsed = parse_integer(self.text(), static_cast<int>(base));
    if (parsed.is_too_large) fail("int(): the number does not fit a 64-bit integer");
    if (parsed.value) return Value::integer(*parsed.value);
    number = parse_float(self.text());
  }
  if (!number || !std::isfinite(*number)) return otherwise;
  return Value::integer(truncated(*number));
}

Value to_float(Runtime& runtime, const Value& self, Call& call) {
  const Value otherwise = call.was_given(0) ? call.get(0) : Value::real(0.0);
  if (self.is_undefined()) fail_undefined(self);
  if (self.is_number()) return Value::real(self.as_double());
  if (!self.is_string()) return otherwise;
  runtime.step_bytes(self.text().size() * 8);
  const std::optional<double> number = parse_float(self.text());
  return number ? Value::real(*number) : otherwise;
}

Value absolute(Runtime& runtime, const Value& self, Call& /*call*/) {
  check_defined(self);
  if (self.is(Kind::kFloat)) return Value::real(std::abs(self.as_double()));
  if (!self.is_integral()) fail("bad operand type for abs(): '", type_name_of(self.kind()), "'");
  return self.as_int() < 0 ? negate(runtime, self) : Value::integer(self.as_int());
}

Value round_number(Runtime& runtime, const Value& self, Call& call) {
  const int64_t precision = call.integer(0, 0);
  const std::string method = call.has(1) ? call.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("method must be common, ceil or floor");
  }
  check_defined(self);
  if (!self.is_number()) {
    fail("type ", type_name_of(self.kind()), " doesn't define __round__ method");
  }
  if (method == "common") {
    if (self.is(Kind::kFloat)) return Value::real(round_half_even(self.as_double(), precision));
    if (precision >= 0) return Value::integer(self.as_int());
    return Value::integer(truncated(round_half_even(self.as_double(), precision)));
  }
  const Value scale = apply_operator(runtime, BinaryOperator::kPower, Value::integer(10),
                                     Value::integer(precision));
  const double scaled = apply_operator(runtime, BinaryOperator::kMultiply, self, scale).as_double();
  const int64_t whole = truncated(method == "ceil" ? std::ceil(scaled) : std::floor(scaled));
  return apply_operator(runtime, BinaryOperator::kDivide, Value::integer(whole), scale);
}

constexpr Builtin kNumberFilters[] = {
    {"int", "default base", 0, to_integer},
    {"float", "default", 0, to_float},
    {"abs", "", 0, absolute},
    {"round", "precision method", 0, round_number},
};

}  // namespace

std::span<const Builtin> number_filters() { return kNumberFilters; }

}  // namespace halley::jinja
