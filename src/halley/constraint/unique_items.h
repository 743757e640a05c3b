// "uniqueItems": enforced where the items are few values, since a grammar cannot remember others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "halley/constraint/json_grammar.h"
#include "halley/constraint/schema_node.h"
#include "halley/json/json.h"

namespace halley {

/// The most values of a set whose items are kept from standing twice: a rule for each subset.
constexpr size_t kSetValuesMax = 8;

/// The different values that the schema `items` of an array lists: those of an enum, a const,
/// booleans or null, or of a $ref to such; none where they are others or more than kSetValuesMax.
std::optional<std::vector<OrderedJson>> listed_values(const OrderedJson& root,
                                                      const SchemaNode& items);

/// Arrays of these values, each at most once.
ExprId set_of(JsonGrammar& json, const std::vector<OrderedJson>& values, int32_t num_min,
              int32_t num_max);

/// Whether a place in the schema has "uniqueItems": true and is not enforced. The schema need not
/// be valid.
bool has_unenforced_unique_items(const OrderedJson& schema);

}  // namespace halley
