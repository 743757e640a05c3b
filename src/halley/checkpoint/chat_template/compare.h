// Comparison, truth and membership as Python defines them.
#pragma once

#include <optional>
#include <vector>

#include "halley/checkpoint/chat_template/runtime.h"

namespace halley::jinja {

/// bool(value).
bool is_true(const Value& value);

/// left == right. Never fails, except at a limit.
bool equals(Runtime& runtime, const Value& left, const Value& right);

/// left < right. Throws where Python does not order the two.
bool is_less(Runtime& runtime, const Value& left, const Value& right, const char* symbol = "<");

/// item in container. Throws where the container is not one.
bool contains(Runtime& runtime, const Value& container, const Value& item);

/// Whether the two are one object ("is" of Python, as far as values can be told apart).
bool is_same(const Value& left, const Value& right);

/// Throws "unhashable type" for what cannot be a key.
void check_hashable(Runtime& runtime, const Value& key);

/// Everything that iteration over the value yields. A generator is used up by it. Throws where
/// the value cannot be iterated.
std::vector<Value> items_of(Runtime& runtime, const Value& value);

/// len(value), or nothing where it has none.
std::optional<size_t> length_of(const Value& value);

/// Throws the reason of an undefined value.
[[noreturn]] void fail_undefined(const Value& value);

/// Fails where the value is undefined.
inline void check_defined(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
}

}  // namespace halley::jinja
