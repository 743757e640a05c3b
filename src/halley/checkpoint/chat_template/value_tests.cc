// The tests that stand behind `is`.
#include "halley/checkpoint/chat_template/builtin_tables.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/operators.h"
#include "halley/checkpoint/chat_template/text.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {
namespace {

template <bool (*kHolds)(const Value&)>
Value simple(Runtime& /*runtime*/, const Value& self, Call& /*call*/) {
  return Value::boolean(kHolds(self));
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_exactly_true(const Value& value) { return value.is(Kind::kBool) && value.as_bool(); }
bool is_exactly_false(const Value& value) { return value.is(Kind::kBool) && !value.as_bool(); }
bool is_integer(const Value& value) { return value.is(Kind::kInt); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is_dict(); }
bool is_escaped(const Value& /*value*/) { return false; }

bool is_sequence(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is_dict() || value.is(Kind::kRange) ||
         value.is_undefined();
}

bool is_iterable(const Value& value) {
  return is_sequence(value) || value.is(Kind::kView) || value.is(Kind::kGenerator) ||
         value.is(Kind::kLoop);
}

bool is_callable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kFunction:
    case Kind::kMethod:
    case Kind::kMacro:
    case Kind::kJoiner:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

template <bool (*kHolds)(std::string_view)>
Value text_test(Runtime& runtime, const Value& self, Call& /*call*/) {
  const std::string text = to_text(runtime, self);
  runtime.step_bytes(text.size() * 8);
  return Value::boolean(kHolds(text));
}

Value remainder(Runtime& runtime, const Value& value, const Value& divisor) {
  return apply_operator(runtime, BinaryOperator::kModulo, value, divisor);
}

Value odd(Runtime& runtime, const Value& self, Call& /*call*/) {
  return Value::boolean(
      equals(runtime, remainder(runtime, self, Value::integer(2)), Value::integer(1)));
}

Value even(Runtime& runtime, const Value& self, Call& /*call*/) {
  return Value::boolean(
      equals(runtime, remainder(runtime, self, Value::integer(2)), Value::integer(0)));
}

Value divisibleby(Runtime& runtime, const Value& self, Call& call) {
  return Value::boolean(equals(runtime, remainder(runtime, self, call.get(0)), Value::integer(0)));
}

Value equal(Runtime& runtime, const Value& self, Call& call) {
  return Value::boolean(equals(runtime, self, call.get(0)));
}

Value unequal(Runtime& runtime, const Value& self, Call& call) {
  return Value::boolean(!equals(runtime, self, call.get(0)));
}

Value less(Runtime& runtime, const Value& self, Call& call) {
  return Value::boolean(is_less(runtime, self, call.get(0), "<"));
}

Value greater(Runtime& runtime, const Value& self, Call& call) {
  return Value::boolean(is_less(runtime, call.get(0), self, ">"));
}

Value less_or_equal(Runtime& runtime, const Value& self, Call& call) {
  return Value::boolean(is_less(runtime, self, call.get(0), "<=") ||
                        equals(runtime, self, call.get(0)));
}

Value greater_or_equal(Runtime& runtime, const Value& self, Call& call) {
  return Value::boolean(is_less(runtime, call.get(0), self, ">=") ||
                        equals(runtime, self, call.get(0)));
}

Value in(Runtime& runtime, const Value& self, Call& call) {
  return Value::boolean(contains(runtime, call.get(0), self));
}

Value sameas(Runtime& /*runtime*/, const Value& self, Call& call) {
  return Value::boolean(is_same(self, call.get(0)));
}

template <const Builtin* (*kFind)(std::string_view)>
Value names_row(Runtime& /*runtime*/, const Value& self, Call& /*call*/) {
  return Value::boolean(self.is_string() && kFind(self.text()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"defined", "", 0, simple<is_defined>},
    {"undefined", "", 0, simple<is_undefined>},
    {"none", "", 0, simple<is_none>},
    {"boolean", "", 0, simple<is_boolean>},
    {"true", "", 0, simple<is_exactly_true>},
    {"false", "", 0, simple<is_exactly_false>},
    {"integer", "", 0, simple<is_integer>},
    {"float", "", 0, simple<is_float>},
    {"number", "", 0, simple<is_number>},
    {"string", "", 0, simple<is_string>},
    {"mapping", "", 0, simple<is_mapping>},
    {"sequence", "", 0, simple<is_sequence>},
    {"iterable", "", 0, simple<is_iterable>},
    {"callable", "", 0, simple<is_callable>},
    {"escaped", "", 0, simple<is_escaped>},
    {"lower", "", 0, text_test<is_lower_text>},
    {"upper", "", 0, text_test<is_upper_text>},
    {"odd", "", 0, odd},
    {"even", "", 0, even},
    {"divisibleby", "num", 1, divisibleby},
    {"sameas", "other", 1, sameas},
    {"in", "seq", 1, in},
    {"filter", "", 0, names_row<find_filter>},
    {"test", "", 0, names_row<find_test>},
    {"==", "other", 1, equal},
    {"eq", "other", 1, equal},
    {"equalto", "other", 1, equal},
    {"!=", "other", 1, unequal},
    {"ne", "other", 1, unequal},
    {"<", "other", 1, less},
    {"lt", "other", 1, less},
    {"lessthan", "other", 1, less},
    {">", "other", 1, greater},
    {"gt", "other", 1, greater},
    {"greaterthan", "other", 1, greater},
    {"<=", "other", 1, less_or_equal},
    {"le", "other", 1, less_or_equal},
    {">=", "other", 1, greater_or_equal},
    {"ge", "other", 1, greater_or_equal},
};

}  // namespace

std::span<const Builtin> tests() { return kTests; }

}  // namespace halley::jinja
