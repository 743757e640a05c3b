#include "halley/checkpoint/chat_template/compare.h"

#include <algorithm>
#include <cmath>
#include <compare>

#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {
namespace {

// Exact, as Python compares an int with a float.
std::partial_ordering order(int64_t left, double right) {
  constexpr double kTwo63 = 9223372036854775808.0;
  if (std::isnan(right)) return std::partial_ordering::unordered;
  if (right >= kTwo63) return std::partial_ordering::less;
  if (right < -kTwo63) return std::partial_ordering::greater;
  const double whole = std::trunc(right);
  const auto integer = static_cast<int64_t>(whole);
  if (left != integer) return left <=> integer;
  return 0.0 <=> (right - whole);
}

std::partial_ordering order_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return left.as_int() <=> right.as_int();
  if (left.is_integral()) return order(left.as_int(), right.as_double());
  if (right.is_integral()) return 0 <=> order(right.as_int(), left.as_double());
  return left.as_double() <=> right.as_double();
}

bool equal_items(Runtime& runtime, const std::vector<Value>& left,
                 const std::vector<Value>& right) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!equals(runtime, left[i], right[i])) return false;
  }
  return true;
}

const Value* find_key(Runtime& runtime, const DictPayload& dict, const Value& key) {
  if (key.is_string()) return dict.find(key.text());
  for (const auto& [name, value] : dict.members) {
    if (equals(runtime, name, key)) return &value;
  }
  return nullptr;
}

bool equal_dicts(Runtime& runtime, const DictPayload& left, const DictPayload& right) {
  if (left.members.size() != right.members.size()) return false;
  for (const auto& [key, value] : left.members) {
    const Value* other = find_key(runtime, right, key);
    if (other == nullptr || !equals(runtime, value, *other)) return false;
  }
  return true;
}

bool equal_ranges(const RangePayload& left, const RangePayload& right) {
  if (left.num_items != right.num_items) return false;
  if (left.num_items == 0) return true;
  return left.start == right.start && (left.num_items == 1 || left.step == right.step);
}

bool range_contains(const RangePayload& range, const Value& item) {
  if (!item.is_number()) return false;
  const double value = item.as_double();
  if (value != std::floor(value) || std::abs(value) > 1e15) return false;
  const Int128 offset = static_cast<Int128>(value) - range.start;
  return offset % range.step == 0 && offset / range.step >= 0 &&
         offset / range.step < range.num_items;
}

}  // namespace

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0.0;
    default: {
      const std::optional<size_t> length = length_of(value);
      return !length || *length > 0;
    }
  }
}

bool is_same(const Value& left, const Value& right) {
  if (left.kind() != right.kind()) return false;
  if (left.payload() != nullptr) {
    return left.payload() == right.payload() ||
           (left.is_string() && left.text().size() <= 1 && left.text() == right.text());
  }
  if (left.is(Kind::kFloat)) return left.as_double() == right.as_double();
  return left.is_none() || left.is_undefined() || left.as_int() == right.as_int();
}

bool equals(Runtime& runtime, const Value& left, const Value& right) {
  runtime.step();
  if (left.is_number() && right.is_number()) {
    return order_numbers(left, right) == std::partial_ordering::equivalent;
  }
  if (left.kind() != right.kind()) return false;
  if (left.payload() != nullptr && left.payload() == right.payload()) return true;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      runtime.step_bytes(left.text().size());
      return left.text() == right.text();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(runtime, left.items(), right.items());
    case Kind::kDict:
      return equal_dicts(runtime, left.dict(), right.dict());
    case Kind::kRange:
      return equal_ranges(left.get<RangePayload>(), right.get<RangePayload>());
    default:
      return false;
  }
}

bool is_less(Runtime& runtime, const Value& left, const Value& right, const char* symbol) {
  runtime.step();
  if (left.is_number() && right.is_number()) {
    return order_numbers(left, right) == std::partial_ordering::less;
  }
  if (left.is_string() && right.is_string()) {
    runtime.step_bytes(std::min(left.text().size(), right.text().size()));
    return left.text() < right.text();  // the order of UTF-8 bytes is that of code points
  }
  if (left.is_sequence() && left.kind() == right.kind()) {
    const std::vector<Value>& a = left.items();
    const std::vector<Value>& b = right.items();
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!equals(runtime, a[i], b[i])) return is_less(runtime, a[i], b[i], symbol);
    }
    return a.size() < b.size();
  }
  check_defined(left);
  check_defined(right);
  fail("'", symbol, "' not supported between instances of '", type_name_of(left.kind()), "' and '",
       type_name_of(right.kind()), "'");
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      check_defined(item);
      if (!item.is_string()) {
        fail("'in <string>' requires string as left operand, not ", type_name_of(item.kind()));
      }
      runtime.step_bytes(container.text().size());
      return find_text(container.text(), item.text()) != std::string::npos;
    case Kind::kDict:
      check_hashable(runtime, item);
      return find_key(runtime, container.dict(), item) != nullptr;
    case Kind::kRange:
      return range_contains(container.get<RangePayload>(), item);
    default:
      for (const Value& member : items_of(runtime, container)) {
        if (equals(runtime, member, item)) return true;
      }
      return false;
  }
}

void check_hashable(Runtime& runtime, const Value& key) {
  runtime.step();
  if (key.is(Kind::kTuple)) {
    for (const Value& item : key.items()) check_hashable(runtime, item);
  }
  if (key.is(Kind::kList) || key.is_dict()) {
    fail("unhashable type: '", type_name_of(key.kind()), "'");
  }
}

std::optional<size_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.string().num_code_points;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return value.items().size();
    case Kind::kDict:
      return value.dict().members.size();
    case Kind::kRange:
      return static_cast<size_t>(value.get<RangePayload>().num_items);
    case Kind::kLoop: {
      auto& loop = value.get<LoopPayload>();
      loop.ensure(SIZE_MAX);
      return loop.items.size();
    }
    default:
      return std::nullopt;
  }
}

namespace {

std::vector<Value> characters_of(Runtime& runtime, const Value& value) {
  const std::string& text = value.text();
  runtime.check_num_items(value.string().num_code_points);
  std::vector<Value> items;
  items.reserve(value.string().num_code_points);
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
    items.push_back(runtime.string(text.substr(at, end - at)));
    at = end;
  }
  return items;
}

}  // namespace

std::vector<Value> items_of(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kString:
      return characters_of(runtime, value);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      runtime.step_bytes(value.items().size() * sizeof(Value));
      return value.items();
    case Kind::kDict:
      for (const auto& [key, member] : value.dict().members) items.push_back(key);
      runtime.step_bytes(items.size() * sizeof(Value));
      return items;
    case Kind::kGenerator: {
      auto& generator = value.get<GeneratorPayload>();
      items.assign(generator.items.begin() + static_cast<ptrdiff_t>(generator.position),
                   generator.items.end());
      runtime.step_bytes(items.size() * sizeof(Value));
      generator.position = generator.items.size();
      return items;
    }
    case Kind::kRange: {
      const auto& range = value.get<RangePayload>();
      runtime.step_bytes(static_cast<size_t>(range.num_items) * sizeof(Value));
      for (int64_t i = 0; i < range.num_items; ++i) {
        items.push_back(Value::integer(range.at(i)));
      }
      return items;
    }
    default:
      fail("'", type_name_of(value.kind()), "' object is not iterable");
  }
}

void fail_undefined(const Value& value) {
  if (value.payload() == nullptr) fail("a value is undefined");
  fail(value.get<UndefinedPayload>().message);
}

}  // namespace halley::jinja
