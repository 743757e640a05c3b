#include "halley/constraint/unique_items.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "halley/base/error.h"
#include "halley/constraint/schema_reference.h"

namespace halley {
namespace {

constexpr int kReferencesMax = 8;

bool is_true(const OrderedJson& schema, const char* keyword) {
  const auto member = schema.find(keyword);
  return member != schema.end() && member->is_boolean() && member->get<bool>();
}

std::optional<std::vector<OrderedJson>> values_in(const SchemaNode& node) {
  const OrderedJson& json = node.json();
  std::vector<OrderedJson> values;
  if (json.contains("enum") && json["enum"].is_array()) {
    for (const OrderedJson& value : json["enum"]) values.push_back(value);
  } else if (json.contains("const")) {
    values.push_back(json["const"]);
  } else if (json.value("type", OrderedJson()) == "boolean" && json.size() == 1) {
    values = {true, false};
  } else if (json.value("type", OrderedJson()) == "null" && json.size() == 1) {
    values = {nullptr};
  } else {
    return std::nullopt;
  }
  if (json.contains("type")) {
    const std::vector<std::string> types = node.types();
    std::erase_if(values, [&](const OrderedJson& value) {
      return std::none_of(types.begin(), types.end(),
                          [&](const std::string& type) { return has_type(value, type); });
    });
  }
  std::vector<OrderedJson> different;
  for (OrderedJson& value : values) {
    const bool is_new = std::find(different.begin(), different.end(), value) == different.end();
    if (is_new) different.push_back(std::move(value));
    if (different.size() > kSetValuesMax) return std::nullopt;
  }
  return different;
}

}  // namespace

std::optional<std::vector<OrderedJson>> listed_values(const OrderedJson& root,
                                                      const SchemaNode& items) {
  SchemaNode node = items;
  for (int i = 0; i < kReferencesMax && node.json().is_object(); ++i) {
    if (!node.json().contains("$ref")) return values_in(node);
    const SchemaReference target = resolve_reference(root, node);
    node = SchemaNode(*target.schema, node.path());
  }
  return std::nullopt;
}

ExprId set_of(JsonGrammar& json, const std::vector<OrderedJson>& values, int32_t num_min,
              int32_t num_max) {
  GrammarBuilder& builder = json.builder();
  const ExprId close = builder.sequence({json.space(), builder.text("]")});
  const ExprId comma = builder.sequence({builder.text(","), json.space()});
  std::vector<ExprId> items;
  for (const OrderedJson& value : values) items.push_back(json.literal(value));
  // The text behind the items of a subset, whose bits are set; larger subsets are numbered higher.
  const size_t num_subsets = size_t{1} << values.size();
  std::vector<ExprId> rest(num_subsets);
  for (size_t subset = num_subsets; subset-- > 0;) {
    const int32_t count = std::popcount(subset);
    std::vector<ExprId> choices;
    if (count >= num_min && count <= num_max) choices.push_back(close);
    for (size_t i = 0; count < num_max && i < values.size(); ++i) {
      if ((subset >> i & 1) != 0) continue;
      const ExprId more = builder.sequence({items[i], rest[subset | size_t{1} << i]});
      choices.push_back(count == 0 ? more : builder.sequence({comma, more}));
    }
    rest[subset] = builder.choice(choices);
    if (subset == 0) {
      choices.erase(choices.begin(), choices.begin() + (num_min == 0 ? 1 : 0));
      const ExprId some = builder.sequence({json.space(), builder.choice(choices)});
      rest[0] = num_min == 0 ? builder.choice({builder.text("]"), some}) : some;
    }
  }
  return builder.sequence({builder.text("["), rest[0]});
}

bool has_unenforced_unique_items(const OrderedJson& schema) {
  std::vector<const OrderedJson*> pending = {&schema};
  while (!pending.empty()) {
    const OrderedJson& place = *pending.back();
    pending.pop_back();
    if (!place.is_structured()) continue;
    for (const OrderedJson& part : place) pending.push_back(&part);
    if (!place.is_object() || !is_true(place, "uniqueItems")) continue;
    if (place.contains("prefixItems") || !place.contains("items")) return true;
    try {
      if (!listed_values(schema, SchemaNode(place["items"], ""))) return true;
    } catch (const Error&) {
      // Its compiler says what is wrong.
    }
  }
  return false;
}

}  // namespace halley
