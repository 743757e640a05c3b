// Resolves "$ref" within the same document.
#pragma once

#include <string>

#include "halley/constraint/schema_node.h"
#include "halley/json/json.h"

namespace halley {

struct SchemaReference {
  std::string pointer;  // RFC 6901, "" for the whole document
  const OrderedJson* schema = nullptr;
};

/// Follows "#", "#/$defs/name" or any other JSON pointer. Throws InputError if it leads nowhere,
/// UnsupportedError for other documents and for names ("$anchor").
SchemaReference resolve_reference(const OrderedJson& root, const SchemaNode& node);

}  // namespace halley
