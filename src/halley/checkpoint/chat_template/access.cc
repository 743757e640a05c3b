#include "halley/checkpoint/chat_template/access.h"

#include <algorithm>
#include <array>

#include "halley/checkpoint/chat_template/callable.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/number_text.h"
#include "halley/checkpoint/chat_template/text.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {
namespace {

constexpr std::array<std::string_view, 8> kListMutators = {"append", "clear", "pop",    "reverse",
                                                           "insert", "sort",  "extend", "remove"};
constexpr std::array<std::string_view, 5> kDictMutators = {"clear", "pop", "popitem", "setdefault",
                                                           "update"};

bool is_mutator(const Value& object, std::string_view name) {
  if (object.is(Kind::kList)) {
    return std::find(kListMutators.begin(), kListMutators.end(), name) != kListMutators.end();
  }
  return object.is_dict() &&
         std::find(kDictMutators.begin(), kDictMutators.end(), name) != kDictMutators.end();
}

// A tuple of the filter groupby.
bool is_group(const Value& object) {
  if (!object.is(Kind::kTuple)) return false;
  const char* name = object.get<ListPayload>().name;
  return name != nullptr && std::string_view(name) == kGroupName;
}

// As Jinja's messages show names.
std::string single_quoted(std::string_view name) {
  std::string text = quote(name, 200);
  text.front() = '\'';
  if (text.back() == '"') text.back() = '\'';
  return text;
}

std::string describe_type(const Value& object) {
  if (object.is_none()) return "None";
  return str(type_name_of(object.kind()), " object");
}

Value undefined_member(Runtime& runtime, const Value& object, const Value& key) {
  if (key.is_string()) {
    return runtime.undefined(
        str("'", describe_type(object), "' has no attribute ", single_quoted(key.text())));
  }
  const std::string name = key.is_number() ? to_repr(runtime, key) : type_name_of(key.kind());
  return runtime.undefined(str(describe_type(object), " has no element ", name));
}

// Attributes that are values, not methods.
std::optional<Value> loop_attribute(Runtime& runtime, LoopPayload& loop, std::string_view name) {
  const auto integer = [](size_t value) { return Value::integer(static_cast<int64_t>(value)); };
  const auto length = [&] {
    loop.ensure(SIZE_MAX);
    return loop.items.size();
  };
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "index0") return integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop.ensure(loop.index0 + 2));
  if (name == "length") return integer(length());
  if (name == "revindex") return integer(length() - loop.index0);
  if (name == "revindex0") return integer(length() - loop.index0 - 1);
  if (name == "depth") return integer(1);
  if (name == "depth0") return integer(0);
  if (name == "previtem") {
    if (loop.index0 == 0) return runtime.undefined("there is no previous item");
    return loop.items[loop.index0 - 1];
  }
  if (name == "nextitem") {
    if (!loop.ensure(loop.index0 + 2)) return runtime.undefined("there is no next item");
    return loop.items[loop.index0 + 1];
  }
  return std::nullopt;
}

std::optional<Value> macro_attribute(Runtime& runtime, const Value& macro, std::string_view name);

// Looks an attribute up as Python's getattr() does.
std::optional<Value> find_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is(Kind::kNamespace)) {
    const Value* value = object.get<NamespacePayload>().find(name);
    return value != nullptr ? std::optional<Value>(*value) : std::nullopt;
  }
  if (object.is(Kind::kLoop)) {
    if (auto value = loop_attribute(runtime, object.get<LoopPayload>(), name)) return value;
  }
  if (object.is(Kind::kMacro)) return macro_attribute(runtime, object, name);
  if (is_group(object)) {
    if (name == "grouper") return object.items()[0];
    if (name == "list") return object.items()[1];
  }
  if (object.is(Kind::kCycler) && name == "current") {
    const auto& cycler = object.get<CyclerPayload>();
    return cycler.items[cycler.position];
  }
  if (is_mutator(object, name)) {
    return runtime.undefined(str("access to attribute ", single_quoted(name), " of '",
                                 type_name_of(object.kind()), "' object is unsafe."));
  }
  if (const Builtin* method = find_method(object.kind(), name)) {
    return Value::object(Kind::kMethod,
                         std::make_shared<MethodPayload>(&runtime.meter(), object, *method));
  }
  if (name.substr(0, 2) == "__" && name.size() > 4) {
    return runtime.undefined(str("access to attribute ", single_quoted(name), " of '",
                                 type_name_of(object.kind()), "' object is unsafe."));
  }
  return std::nullopt;
}

std::optional<size_t> position_of(int64_t index, size_t size) {
  const auto length = static_cast<int64_t>(size);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return static_cast<size_t>(index);
}

Value character_at(Runtime& runtime, const StringPayload& string, size_t index) {
  if (string.is_ascii()) return runtime.string(string.text.substr(index, 1));
  runtime.step_bytes(string.text.size());
  size_t end = byte_position(string.text, index);
  const size_t begin = end;
  next_code_point(string.text, end);
  return runtime.string(string.text.substr(begin, end - begin));
}

// Looks an item up as Python's subscript does.
std::optional<Value> find_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_dict()) {
    if (key.is_string()) {
      runtime.step_bytes(key.text().size());
      const Value* value = object.dict().find(key.text());
      return value != nullptr ? std::optional<Value>(*value) : std::nullopt;
    }
    if (key.is_undefined()) return std::nullopt;
    for (const auto& [name, value] : object.dict().members) {
      if (equals(runtime, name, key)) return value;
    }
    return std::nullopt;
  }
  if (!key.is_integral()) return std::nullopt;
  const bool is_indexed = object.is_string() || object.is_sequence() || object.is(Kind::kRange);
  if (!is_indexed) return std::nullopt;
  const auto position = position_of(key.as_int(), length_of(object).value_or(0));
  if (!position) return std::nullopt;
  if (object.is_string()) return character_at(runtime, object.string(), *position);
  if (object.is_sequence()) return object.items()[*position];
  return Value::integer(object.get<RangePayload>().at(static_cast<int64_t>(*position)));
}

std::optional<Value> macro_attribute(Runtime& runtime, const Value& macro, std::string_view name) {
  if (name == "name") return runtime.string(macro_name(macro));
  return std::nullopt;
}

// The positions that a slice selects, as Python's slice.indices computes them.
struct SlicePositions {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
  int64_t stop = 0;
};

SlicePositions positions_of(const Slice& slice, size_t size) {
  const auto length = static_cast<int64_t>(size);
  SlicePositions positions;
  positions.step = slice.step.value_or(1);
  if (positions.step == 0) fail("slice step cannot be zero");
  // Beyond the length, all steps are alike; this keeps the arithmetic below from overflowing.
  positions.step = std::clamp(positions.step, -length - 1, length + 1);
  const bool is_forward = positions.step > 0;
  const auto bounded = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    int64_t value = *bound;
    if (value < 0) value = value < -length ? -1 : value + length;
    if (*bound < 0 && value < 0) return is_forward ? int64_t{0} : int64_t{-1};
    return std::min(value, is_forward ? length : length - 1);
  };
  positions.first = bounded(slice.start, is_forward ? 0 : length - 1);
  const int64_t stop = bounded(slice.stop, is_forward ? length : -1);
  positions.stop = stop;
  const int64_t distance = is_forward ? stop - positions.first : positions.first - stop;
  const int64_t step = is_forward ? positions.step : -positions.step;
  positions.count = distance > 0 ? (distance + step - 1) / step : 0;
  return positions;
}

Value slice_string(Runtime& runtime, const StringPayload& string, const SlicePositions& at) {
  runtime.step_bytes(string.text.size());
  if (at.count == 0) return runtime.string("");
  if (at.step == 1) {
    const std::string_view text = string.text;
    const auto first = static_cast<size_t>(at.first);
    const auto count = static_cast<size_t>(at.count);
    if (string.is_ascii()) return runtime.string(text.substr(first, count));
    const std::string_view tail = text.substr(byte_position(text, first));
    return runtime.string(tail.substr(0, byte_position(tail, count)));
  }
  runtime.step_bytes(string.text.size() * 8);  // each code point is looked up and copied alone
  std::vector<size_t> starts;                  // bytes where code points begin
  runtime.check_num_items(string.num_code_points / 4);
  starts.reserve(string.num_code_points);
  for (size_t i = 0; i < string.text.size(); ++i) {
    if ((static_cast<uint8_t>(string.text[i]) & 0xC0) != 0x80) starts.push_back(i);
  }
  std::string out;
  for (int64_t i = 0; i < at.count; ++i) {
    size_t end = starts[static_cast<size_t>(at.first + i * at.step)];
    const size_t begin = end;
    next_code_point(string.text, end);
    out.append(string.text, begin, end - begin);
  }
  return runtime.string(std::move(out));
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  check_defined(object);
  if (auto value = find_attribute(runtime, object, name)) return *value;
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return undefined_member(runtime, object, runtime.string(name));
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  check_defined(object);
  if (auto value = find_item(runtime, object, key)) return *value;
  if (key.is_string()) {
    if (auto value = find_attribute(runtime, object, key.text())) return *value;
  }
  return undefined_member(runtime, object, key);
}

Value get_slice(Runtime& runtime, const Value& object, const Slice& slice) {
  check_defined(object);
  const bool is_sliced = object.is_string() || object.is_sequence() || object.is(Kind::kRange);
  if (!is_sliced) fail("'", type_name_of(object.kind()), "' object cannot be sliced");
  if (!slice.is_usable) fail("slice indices must be integers or None");
  const SlicePositions at = positions_of(slice, length_of(object).value_or(0));
  if (object.is_string()) return slice_string(runtime, object.string(), at);
  if (object.is(Kind::kRange)) {
    const auto& range = object.get<RangePayload>();
    const Int128 start = range.start + static_cast<Int128>(at.first) * range.step;
    const Int128 step = static_cast<Int128>(range.step) * at.step;
    const Int128 stop = range.start + static_cast<Int128>(at.stop) * range.step;
    const bool fits = start == static_cast<int64_t>(start) && step == static_cast<int64_t>(step) &&
                      stop == static_cast<int64_t>(stop);
    if (!fits) fail("a slice of a range does not fit 64-bit integers");
    return runtime.range(static_cast<int64_t>(start), static_cast<int64_t>(stop),
                         static_cast<int64_t>(step));
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(at.count));
  for (int64_t i = 0; i < at.count; ++i) {
    items.push_back(object.items()[static_cast<size_t>(at.first + i * at.step)]);
  }
  return object.is(Kind::kTuple) ? runtime.tuple(std::move(items)) : runtime.list(std::move(items));
}

AttributePath::AttributePath(Runtime& runtime, const Value& attribute) : runtime_(runtime) {
  if (attribute.is_undefined() || attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  constexpr size_t kPartsMax = 100;
  std::string_view rest = attribute.text();
  while (true) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    const bool is_index =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    const std::optional<int64_t> index =
        is_index ? parse_integer(part, 10).value : std::optional<int64_t>();
    parts_.push_back(index ? Value::integer(*index) : runtime.string(part));
    if (parts_.size() > kPartsMax) fail("an attribute path has more than ", kPartsMax, " parts");
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
}

Value AttributePath::follow(const Value& item, const Value* otherwise) const {
  Value value = item;
  for (const Value& part : parts_) {
    runtime_.step();
    value = get_item(runtime_, value, part);
    if (otherwise != nullptr && value.is_undefined()) value = *otherwise;
  }
  return value;
}

}  // namespace halley::jinja
