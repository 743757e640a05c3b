// Values as text: str() and repr() of Python, and JSON as json.dumps writes it.
#pragma once

#include <string>
#include <string_view>

#include "halley/checkpoint/chat_template/runtime.h"

namespace halley::jinja {

/// str(value).
std::string to_text(Runtime& runtime, const Value& value);

/// repr(value).
std::string to_repr(Runtime& runtime, const Value& value);

/// repr of a float: the shortest digits that read back the same.
std::string float_text(double value);

struct JsonStyle {
  bool is_ascii = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sorts_keys = false;
};

/// json.dumps(value, ...). Throws for what JSON cannot hold.
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace halley::jinja
