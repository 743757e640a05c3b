// Filters that apply other filters and tests: map, select and their like; and what picks one
// value: default, attr.
#include "halley/checkpoint/chat_template/access.h"
#include "halley/checkpoint/chat_template/builtin_tables.h"
#include "halley/checkpoint/chat_template/compare.h"

namespace halley::jinja {
namespace {

// Removes the first positional argument.
Value take_first(Arguments& arguments) {
  Value value = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return value;
}

const Builtin& named_row(const Value& name, const char* kind,
                         const Builtin* (*find)(std::string_view)) {
  check_defined(name);
  const Builtin* row = name.is_string() ? find(name.text()) : nullptr;
  if (row == nullptr) {
    fail("No ", kind, " named ", name.is_string() ? quote(name.text()) : "of this type", ".");
  }
  return *row;
}

Value map_attribute(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::optional<Value> attribute = arguments.take_keyword("attribute");
  const std::optional<Value> given = arguments.take_keyword("default");
  if (!arguments.keyword.empty()) {
    fail("Unexpected keyword argument ", quote(arguments.keyword[0].first));
  }
  const Value* otherwise = given && !given->is_none() ? &*given : nullptr;
  const AttributePath path(runtime, *attribute);
  std::vector<Value> results;
  for (const Value& item : items_of(runtime, self)) {
    results.push_back(path.follow(item, otherwise));
  }
  return runtime.generator(std::move(results));
}

Value map(Runtime& runtime, const Value& self, Call& call) {
  Arguments& arguments = call.arguments();
  if (!is_true(self)) return runtime.generator({});
  if (arguments.positional.empty()) {
    for (const auto& [name, value] : arguments.keyword) {
      if (name == "attribute") return map_attribute(runtime, self, arguments);
    }
    fail("map requires a filter argument");
  }
  const Builtin& filter = named_row(take_first(arguments), "filter", find_filter);
  std::vector<Value> results;
  for (const Value& item : items_of(runtime, self)) {
    results.push_back(call_builtin(runtime, filter, item, arguments));
  }
  return runtime.generator(std::move(results));
}

// select, reject (kWanted false) and, with an attribute first, selectattr and rejectattr.
template <bool kWanted, bool kByAttribute>
Value select(Runtime& runtime, const Value& self, Call& call) {
  Arguments& arguments = call.arguments();
  if (!is_true(self)) return runtime.generator({});
  Value attribute;
  if (kByAttribute) {
    if (arguments.positional.empty()) fail("Missing parameter for attribute name");
    attribute = take_first(arguments);
  }
  const AttributePath path(runtime, attribute);
  const Builtin* test = nullptr;
  if (!arguments.positional.empty()) {
    test = &named_row(take_first(arguments), "test", find_test);
  }
  std::vector<Value> results;
  for (const Value& item : items_of(runtime, self)) {
    const Value value = path.follow(item);
    const bool passes =
        is_true(test == nullptr ? value : call_builtin(runtime, *test, value, arguments));
    if (passes == kWanted) results.push_back(item);
  }
  return runtime.generator(std::move(results));
}

Value otherwise(Runtime& runtime, const Value& self, Call& call) {
  const bool is_missing = self.is_undefined() || (call.truth(1, false) && !is_true(self));
  if (!is_missing) return self;
  return call.was_given(0) ? call.get(0) : runtime.string("");
}

Value attr(Runtime& runtime, const Value& self, Call& call) {
  const std::string& name = call.text(0);
  check_defined(self);
  // Members of a dictionary are no attributes.
  if (self.is_dict() && find_method(Kind::kDict, name) == nullptr) {
    return runtime.undefined(str("'dict object' has no attribute '", name, "'"));
  }
  return get_attribute(runtime, self, name);
}

constexpr Builtin kSelectionFilters[] = {
    {"map", "*", 0, map},
    {"select", "*", 0, select<true, false>},
    {"reject", "*", 0, select<false, false>},
    {"selectattr", "*", 0, select<true, true>},
    {"rejectattr", "*", 0, select<false, true>},
    {"default", "default_value boolean", 0, otherwise},
    {"d", "default_value boolean", 0, otherwise},
    {"attr", "name", 1, attr},
};

}  // namespace

std::span<const Builtin> selection_filters() { return kSelectionFilters; }

}  // namespace halley::jinja
