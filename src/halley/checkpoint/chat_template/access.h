// Attributes, items and slices of values, as Jinja's immutable sandbox allows them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "halley/checkpoint/chat_template/runtime.h"

namespace halley::jinja {

/// object.name: a method or attribute, else a member of that name, else undefined. What would
/// change a list or dictionary is undefined, with that as its reason.
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);

/// object[key]: an item or member, else an attribute, else undefined.
Value get_item(Runtime& runtime, const Value& object, const Value& key);

struct Slice {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  std::optional<int64_t> step;
  bool is_usable = true;  // false where a bound is neither an integer nor None
};

/// object[start:stop:step]. Throws where Python would.
Value get_slice(Runtime& runtime, const Value& object, const Slice& slice);

/// The path that filters take as `attribute`: "a.b.0", or one integer.
class AttributePath {
 public:
  /// An undefined or None `attribute` gives a path that leads to the item itself.
  AttributePath(Runtime& runtime, const Value& attribute);
  bool is_empty() const { return parts_.empty(); }
  /// Follows the path. `otherwise`, where not null, replaces what is undefined on the way.
  Value follow(const Value& item, const Value* otherwise = nullptr) const;

 private:
  Runtime& runtime_;
  std::vector<Value> parts_;
};

}  // namespace halley::jinja
