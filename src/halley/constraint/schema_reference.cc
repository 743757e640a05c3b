#include "halley/constraint/schema_reference.h"

#include <optional>
#include <string_view>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

std::optional<int> hex_digit(char c) {
  const size_t digit = std::string_view("0123456789abcdefABCDEF").find(c);
  if (digit == std::string_view::npos) return std::nullopt;
  return static_cast<int>(digit < 16 ? digit : digit - 6);
}

// The fragment of a URI, where %41 is A.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const std::optional<int> high = hex_digit(text[i + 1]);
      const std::optional<int> low = hex_digit(text[i + 2]);
      if (high && low) {
        decoded += static_cast<char>(*high * 16 + *low);
        i += 2;
        continue;
      }
    }
    decoded += text[i];
  }
  return decoded;
}

std::string unescaped(std::string_view part) {
  std::string name;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '~' && i + 1 < part.size()) {
      name += part[++i] == '1' ? '/' : '~';
    } else {
      name += part[i];
    }
  }
  return name;
}

const OrderedJson* member_of(const OrderedJson& value, const std::string& name) {
  if (value.is_object()) {
    const auto found = value.find(name);
    return found == value.end() ? nullptr : &*found;
  }
  if (!value.is_array() || name.empty() || name.size() > 9) return nullptr;
  size_t index = 0;
  for (const char c : name) {
    if (c < '0' || c > '9') return nullptr;
    index = index * 10 + static_cast<size_t>(c - '0');
  }
  return index < value.size() ? &value[index] : nullptr;
}

}  // namespace

SchemaReference resolve_reference(const OrderedJson& root, const SchemaNode& node) {
  const std::string reference = node.text("$ref");
  if (!reference.starts_with('#') || (reference.size() > 1 && reference[1] != '/')) {
    node.reject_unsupported(str("$ref to ", quote(reference),
                                " is not supported. Refer to a place in the same schema, as "
                                "\"#/$defs/name\"."));
  }
  const std::string pointer = percent_decoded(std::string_view(reference).substr(1));
  SchemaReference found{"", &root};
  std::string_view rest = pointer;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('/', 1), rest.size());
    const std::string name = unescaped(rest.substr(1, end - 1));
    found.schema = member_of(*found.schema, name);
    if (found.schema == nullptr) {
      node.reject("$ref", str("expected a place in the schema, got ", quote(reference),
                              ", which is not there."));
    }
    found.pointer += pointer_part(name);
    rest.remove_prefix(end);
  }
  return found;
}

}  // namespace halley
