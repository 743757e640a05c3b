// Filters that take or make sequences.
#include <algorithm>
#include <numeric>

#include "halley/checkpoint/chat_template/access.h"
#include "halley/checkpoint/chat_template/builtin_tables.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/operators.h"
#include "halley/checkpoint/chat_template/sort_keys.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {
namespace {

Value length(Runtime& /*runtime*/, const Value& self, Call& /*call*/) {
  const std::optional<size_t> size = length_of(self);
  if (!size) fail("object of type '", type_name_of(self.kind()), "' has no len()");
  return Value::integer(static_cast<int64_t>(*size));
}

Value list(Runtime& runtime, const Value& self, Call& /*call*/) {
  return runtime.list(items_of(runtime, self));
}

Value first(Runtime& runtime, const Value& self, Call& /*call*/) {
  if (self.is(Kind::kGenerator)) {
    auto& generator = self.get<GeneratorPayload>();
    if (generator.position < generator.items.size()) return generator.items[generator.position++];
  } else if (self.is_string() || self.is_sequence()) {
    if (length_of(self) != size_t{0}) return get_item(runtime, self, Value::integer(0));
  } else {
    const std::vector<Value> items = items_of(runtime, self);
    if (!items.empty()) return items[0];
  }
  return runtime.undefined("No first item, sequence was empty.");
}

Value last(Runtime& runtime, const Value& self, Call& /*call*/) {
  if (self.is(Kind::kGenerator)) fail("'generator' object is not reversible");
  check_defined(self);
  const std::vector<Value> items = items_of(runtime, self);
  if (items.empty()) return runtime.undefined("No last item, sequence was empty.");
  return items.back();
}

Value reverse(Runtime& runtime, const Value& self, Call& /*call*/) {
  if (self.is_string()) return get_slice(runtime, self, {std::nullopt, std::nullopt, -1, true});
  std::vector<Value> items = items_of(runtime, self);
  std::reverse(items.begin(), items.end());
  if (self.is(Kind::kGenerator)) return runtime.list(std::move(items));
  return runtime.generator(std::move(items));
}

Value join(Runtime& runtime, const Value& self, Call& call) {
  const std::string separator = call.was_given(0) ? to_text(runtime, call.get(0)) : "";
  const AttributePath path(runtime, call.get(1));
  std::string out;
  bool is_first = true;
  for (const Value& item : items_of(runtime, self)) {
    if (!is_first) out += separator;
    is_first = false;
    const std::string text = to_text(runtime, path.follow(item));
    out += text;
    runtime.step_bytes(separator.size() + text.size());
    runtime.check_string_size(out.size());
  }
  return runtime.string(std::move(out));
}

Value sort(Runtime& runtime, const Value& self, Call& call) {
  const std::vector<Value> items = items_of(runtime, self);
  const std::vector<AttributePath> paths = split_paths(runtime, call.get(2));
  const bool ignores_case = !call.truth(1, false);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      key.push_back(sort_key(runtime, path.follow(item), ignores_case));
    }
    keys.push_back(runtime.list(std::move(key)));
  }
  std::vector<Value> sorted;
  for (const size_t i : sorted_order(runtime, keys, call.truth(0, false))) {
    sorted.push_back(items[i]);
  }
  return runtime.list(std::move(sorted));
}

Value dictsort(Runtime& runtime, const Value& self, Call& call) {
  check_defined(self);
  if (!self.is_dict()) fail("'", type_name_of(self.kind()), "' object has no attribute 'items'");
  const std::string by = call.was_given(1) ? call.text(1) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  const bool ignores_case = !call.truth(0, false);
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().members) {
    keys.push_back(sort_key(runtime, by == "key" ? key : value, ignores_case));
  }
  std::vector<Value> sorted;
  for (const size_t i : sorted_order(runtime, keys, call.truth(2, false))) {
    const auto& [key, value] = self.dict().members[i];
    sorted.push_back(runtime.pair(key, value));
  }
  return runtime.list(std::move(sorted));
}

Value unique(Runtime& runtime, const Value& self, Call& call) {
  const AttributePath path(runtime, call.get(1));
  const bool ignores_case = !call.truth(0, false);
  std::vector<Value> items;
  Members seen;  // a dictionary of the keys tells which come first
  for (const Value& item : items_of(runtime, self)) {
    seen.emplace_back(sort_key(runtime, path.follow(item), ignores_case),
                      Value::integer(static_cast<int64_t>(items.size())));
    items.push_back(item);
  }
  // Backwards, so that the position that stays is that of the first item.
  std::reverse(seen.begin(), seen.end());
  const Value dict = runtime.dict(std::move(seen));
  std::vector<size_t> positions;
  for (const auto& [key, position] : dict.dict().members) {
    positions.push_back(static_cast<size_t>(position.as_int()));
  }
  std::sort(positions.begin(), positions.end());
  std::vector<Value> result;
  for (const size_t position : positions) result.push_back(items[position]);
  return runtime.generator(std::move(result));
}

template <bool kMaximum>
Value extreme(Runtime& runtime, const Value& self, Call& call) {
  const AttributePath path(runtime, call.get(1));
  const bool ignores_case = !call.truth(0, false);
  const std::vector<Value> items = items_of(runtime, self);
  if (items.empty()) return runtime.undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = sort_key(runtime, path.follow(items[0]), ignores_case);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = sort_key(runtime, path.follow(items[i]), ignores_case);
    const bool is_better =
        kMaximum ? is_less(runtime, best_key, key, ">") : is_less(runtime, key, best_key, "<");
    if (!is_better) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Value sum(Runtime& runtime, const Value& self, Call& call) {
  const AttributePath path(runtime, call.get(0));
  Value total = call.was_given(1) ? call.get(1) : Value::integer(0);
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items_of(runtime, self)) {
    total = apply_operator(runtime, BinaryOperator::kAdd, total, path.follow(item));
  }
  return total;
}

Value items(Runtime& runtime, const Value& self, Call& /*call*/) {
  std::vector<Value> pairs;
  if (!self.is_undefined() && !self.is_dict()) fail("Can only get item pairs from a mapping.");
  if (self.is_dict()) {
    for (const auto& [key, value] : self.dict().members) pairs.push_back(runtime.pair(key, value));
  }
  return runtime.generator(std::move(pairs));
}

Value batch(Runtime& runtime, const Value& self, Call& call) {
  const int64_t line_count = call.integer(0, 0);
  std::vector<Value> batches;
  std::vector<Value> current;
  for (const Value& item : items_of(runtime, self)) {
    if (static_cast<int64_t>(current.size()) == line_count) {
      batches.push_back(runtime.list(std::exchange(current, {})));
    }
    current.push_back(item);
  }
  if (!current.empty()) {
    if (call.has(1) && static_cast<int64_t>(current.size()) < line_count) {
      runtime.check_num_items(static_cast<size_t>(line_count));
      current.resize(static_cast<size_t>(line_count), call.get(1));
    }
    batches.push_back(runtime.list(std::move(current)));
  }
  return runtime.generator(std::move(batches));
}

Value slice(Runtime& runtime, const Value& self, Call& call) {
  const std::vector<Value> all = items_of(runtime, self);
  const int64_t num_slices = call.integer(0, 0);
  if (num_slices == 0) fail("integer division or modulo by zero");
  if (num_slices > 0) runtime.check_num_items(static_cast<size_t>(num_slices));
  const auto size = static_cast<int64_t>(all.size());
  std::vector<Value> slices;
  int64_t begin = 0;
  for (int64_t i = 0; i < num_slices; ++i) {
    const bool has_extra = i < size % num_slices;
    const int64_t end = begin + size / num_slices + (has_extra ? 1 : 0);
    std::vector<Value> part(all.begin() + begin, all.begin() + end);
    if (call.has(1) && !has_extra) part.push_back(call.get(1));
    slices.push_back(runtime.list(std::move(part)));
    begin = end;
  }
  return runtime.generator(std::move(slices));
}

Value groupby(Runtime& runtime, const Value& self, Call& call) {
  const AttributePath path(runtime, call.get(0));
  const Value* otherwise = call.has(1) ? &call.get(1) : nullptr;
  const bool ignores_case = !call.truth(2, false);
  const std::vector<Value> all = items_of(runtime, self);
  std::vector<Value> keys;
  for (const Value& item : all) {
    keys.push_back(sort_key(runtime, path.follow(item, otherwise), ignores_case));
  }
  const std::vector<size_t> order = sorted_order(runtime, keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    std::vector<Value> members;
    size_t end = begin;
    while (end < order.size() && equals(runtime, keys[order[begin]], keys[order[end]])) {
      members.push_back(all[order[end++]]);
    }
    // The key as it is written in the first member.
    std::vector<Value> group = {path.follow(members[0], otherwise),
                                runtime.list(std::move(members))};
    groups.push_back(Value::object(
        Kind::kTuple,
        std::make_shared<ListPayload>(&runtime.meter(), std::move(group), kGroupName)));
    begin = end;
  }
  return runtime.list(std::move(groups));
}

constexpr Builtin kSequenceFilters[] = {
    {"length", "", 0, length},
    {"count", "", 0, length},
    {"list", "", 0, list},
    {"first", "", 0, first},
    {"last", "", 0, last},
    {"reverse", "", 0, reverse},
    {"join", "d attribute", 0, join},
    {"sort", "reverse case_sensitive attribute", 0, sort},
    {"dictsort", "case_sensitive by reverse", 0, dictsort},
    {"unique", "case_sensitive attribute", 0, unique},
    {"min", "case_sensitive attribute", 0, extreme<false>},
    {"max", "case_sensitive attribute", 0, extreme<true>},
    {"sum", "attribute start", 0, sum},
    {"items", "", 0, items},
    {"batch", "linecount fill_with", 1, batch},
    {"slice", "slices fill_with", 1, slice},
    {"groupby", "attribute default case_sensitive", 1, groupby},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kSequenceFilters; }

}  // namespace halley::jinja
