// The methods of lists, tuples, dictionaries, loop and cycler that change no list or dictionary.
#include "halley/checkpoint/chat_template/builtin_tables.h"
#include "halley/checkpoint/chat_template/compare.h"

namespace halley::jinja {
namespace {

Value sequence_index(Runtime& runtime, const Value& self, Call& call) {
  const std::vector<Value> items = items_of(runtime, self);
  for (size_t i = 0; i < items.size(); ++i) {
    if (equals(runtime, items[i], call.get(0))) return Value::integer(static_cast<int64_t>(i));
  }
  fail("the value is not in the ", type_name_of(self.kind()));
}

Value sequence_count(Runtime& runtime, const Value& self, Call& call) {
  int64_t count = 0;
  for (const Value& item : items_of(runtime, self)) {
    count += equals(runtime, item, call.get(0)) ? 1 : 0;
  }
  return Value::integer(count);
}

// Values never change, so that the value itself is as good as its copy.
Value copy(Runtime& /*runtime*/, const Value& self, Call& /*call*/) {
  if (self.is(Kind::kTuple) || self.is(Kind::kRange)) {
    fail("'", type_name_of(self.kind()), "' object has no attribute 'copy'");
  }
  return self;
}

Value dict_get(Runtime& runtime, const Value& self, Call& call) {
  const Value& key = call.get(0);
  const Value otherwise = call.was_given(1) ? call.get(1) : Value::none();
  if (key.is_string()) {
    const Value* value = self.dict().find(key.text());
    return value != nullptr ? *value : otherwise;
  }
  check_hashable(runtime, key);
  for (const auto& [name, value] : self.dict().members) {
    if (equals(runtime, name, key)) return value;
  }
  return otherwise;
}

Value dict_keys(Runtime& runtime, const Value& self, Call& /*call*/) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().members) items.push_back(key);
  return runtime.view(std::move(items), "dict_keys");
}

Value dict_values(Runtime& runtime, const Value& self, Call& /*call*/) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().members) items.push_back(value);
  return runtime.view(std::move(items), "dict_values");
}

Value dict_items(Runtime& runtime, const Value& self, Call& /*call*/) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().members) items.push_back(runtime.pair(key, value));
  return runtime.view(std::move(items), "dict_items");
}

Value loop_cycle(Runtime& /*runtime*/, const Value& self, Call& call) {
  const std::vector<Value>& values = call.arguments().positional;
  if (values.empty()) fail("no items for cycling given");
  return values[self.get<LoopPayload>().index0 % values.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, Call& call) {
  auto& loop = self.get<LoopPayload>();
  std::vector<Value>& values = call.arguments().positional;
  bool is_same = loop.last_changed != nullptr && loop.last_changed->size() == values.size();
  for (size_t i = 0; is_same && i < values.size(); ++i) {
    is_same = equals(runtime, (*loop.last_changed)[i], values[i]);
  }
  if (is_same) return Value::boolean(false);
  if (loop.last_changed == nullptr) {
    loop.last_changed = std::make_shared<std::vector<Value>>();
    runtime.keep(loop.last_changed);
  }
  *loop.last_changed = std::move(values);
  return Value::boolean(true);
}

Value cycler_next(Runtime& /*runtime*/, const Value& self, Call& /*call*/) {
  auto& cycler = self.get<CyclerPayload>();
  const Value value = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return value;
}

Value cycler_reset(Runtime& /*runtime*/, const Value& self, Call& /*call*/) {
  self.get<CyclerPayload>().position = 0;
  return Value::none();
}

constexpr Builtin kSequenceMethods[] = {
    {"index", "value", 1, sequence_index},
    {"count", "value", 1, sequence_count},
    {"copy", "", 0, copy},
};

constexpr Builtin kDictMethods[] = {
    {"get", "key default", 1, dict_get}, {"keys", "", 0, dict_keys}, {"values", "", 0, dict_values},
    {"items", "", 0, dict_items},        {"copy", "", 0, copy},
};

constexpr Builtin kLoopMethods[] = {
    {"cycle", "*", 0, loop_cycle},
    {"changed", "*", 0, loop_changed},
};

constexpr Builtin kCyclerMethods[] = {
    {"next", "", 0, cycler_next},
    {"reset", "", 0, cycler_reset},
};

}  // namespace

std::span<const Builtin> sequence_methods() { return kSequenceMethods; }
std::span<const Builtin> dict_methods() { return kDictMethods; }
std::span<const Builtin> loop_methods() { return kLoopMethods; }
std::span<const Builtin> cycler_methods() { return kCyclerMethods; }

}  // namespace halley::jinja
