#include "halley/constraint/schema_node.h"

#include <algorithm>
#include <cmath>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

// Keywords that do not restrict values, or only modify others.
constexpr std::string_view kAnnotations[] = {"$schema",         "$id",
                                             "$comment",        "$defs",
                                             "definitions",     "title",
                                             "description",     "default",
                                             "deprecated",      "readOnly",
                                             "writeOnly",       "examples",
                                             "example",         "contentMediaType",
                                             "contentEncoding", "contentSchema",
                                             "discriminator",   "externalDocs"};

struct TypeKeyword {
  std::string_view keyword;
  std::string_view type;
};
// Keywords that restrict values of one type only.
constexpr TypeKeyword kTypeKeywords[] = {{"properties", "object"},
                                         {"required", "object"},
                                         {"additionalProperties", "object"},
                                         {"items", "array"},
                                         {"prefixItems", "array"},
                                         {"minItems", "array"},
                                         {"maxItems", "array"},
                                         {"uniqueItems", "array"},
                                         {"minLength", "string"},
                                         {"maxLength", "string"},
                                         {"pattern", "string"},
                                         {"format", "string"},
                                         {"minimum", "number"},
                                         {"maximum", "number"},
                                         {"exclusiveMinimum", "number"},
                                         {"exclusiveMaximum", "number"},
                                         {"multipleOf", "number"},
                                         {"propertyNames", "object"},
                                         {"patternProperties", "object"},
                                         {"minProperties", "object"},
                                         {"maxProperties", "object"}};
constexpr std::string_view kOtherKeywords[] = {"type",  "enum",  "const", "anyOf",
                                               "oneOf", "allOf", "$ref",  "nullable"};
constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                       "integer", "boolean", "null"};

template <typename List>
bool is_in(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

const TypeKeyword* find_type_keyword(std::string_view keyword) {
  const auto* const found =
      std::find_if(std::begin(kTypeKeywords), std::end(kTypeKeywords),
                   [&](const TypeKeyword& known) { return known.keyword == keyword; });
  return found == std::end(kTypeKeywords) ? nullptr : found;
}

bool is_annotation(std::string_view keyword) {
  return is_in(kAnnotations, keyword) || keyword.starts_with("x-");
}

const char* json_type_of(const OrderedJson& value) { return value.type_name(); }

}  // namespace

bool has_type(const OrderedJson& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (value.is_number_integer()) return true;
  return value.is_number() && std::trunc(value.get<double>()) == value.get<double>();
}

std::string pointer_part(std::string_view name) {
  std::string part = "/";
  for (const char c : name) {
    if (c == '~') {
      part += "~0";
    } else if (c == '/') {
      part += "~1";
    } else {
      part += c;
    }
  }
  return part;
}

std::string SchemaNode::place(const char* keyword) const { return path_ + pointer_part(keyword); }

void SchemaNode::reject(const char* keyword, const std::string& message) const {
  throw InputError(str(place(keyword), ": ", message));
}

void SchemaNode::reject_unsupported(const std::string& message) const {
  throw UnsupportedError(str(path_, ": ", message));
}

void SchemaNode::check_keywords() const {
  if (!schema_->is_object()) {
    throw InputError(str(path_, ": expected a schema (an object, true or false), got ",
                         json_type_of(*schema_), "."));
  }
  for (const auto& [keyword, value] : schema_->items()) {
    if (is_annotation(keyword) || is_in(kOtherKeywords, keyword)) continue;
    if (find_type_keyword(keyword) != nullptr) continue;
    reject_unsupported(str("the keyword ", quote(keyword),
                           " is not supported in constrained output. Take it out of the schema, "
                           "or give its name the prefix \"x-\" where it restricts nothing."));
  }
}

std::optional<std::string> SchemaNode::other_keyword(
    std::initializer_list<std::string_view> allowed) const {
  for (const auto& [keyword, value] : schema_->items()) {
    if (!is_annotation(keyword) && keyword != "nullable" && !is_in(allowed, keyword)) {
      return keyword;
    }
  }
  return std::nullopt;
}

SchemaNode SchemaNode::child(const char* keyword) const {
  return {schema_->at(keyword), place(keyword)};
}
SchemaNode SchemaNode::child(const char* keyword, size_t index) const {
  return {schema_->at(keyword).at(index), str(place(keyword), "/", index)};
}
const OrderedJson& SchemaNode::array(const char* keyword) const {
  const OrderedJson& value = schema_->at(keyword);
  if (!value.is_array()) {
    reject(keyword, str("expected an array, got ", json_type_of(value), "."));
  }
  return value;
}

const OrderedJson& SchemaNode::object(const char* keyword) const {
  const OrderedJson& value = schema_->at(keyword);
  if (!value.is_object()) {
    reject(keyword, str("expected an object, got ", json_type_of(value), "."));
  }
  return value;
}

std::string SchemaNode::text(const char* keyword) const {
  const OrderedJson& value = schema_->at(keyword);
  if (!value.is_string()) {
    reject(keyword, str("expected a string, got ", json_type_of(value), "."));
  }
  return value.get<std::string>();
}

bool SchemaNode::boolean_or(const char* keyword, bool otherwise) const {
  if (!has(keyword)) return otherwise;
  const OrderedJson& value = schema_->at(keyword);
  if (!value.is_boolean()) {
    reject(keyword, str("expected true or false, got ", json_type_of(value), "."));
  }
  return value.get<bool>();
}

std::optional<int64_t> SchemaNode::count(const char* keyword) const {
  if (!has(keyword)) return std::nullopt;
  const OrderedJson& value = schema_->at(keyword);
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number < 0 || std::trunc(number) != number) {
    reject(keyword, str("expected an integer of 0 or more, got ", quote(value.dump()), "."));
  }
  return number > kRepeatMax ? int64_t{kRepeatMax} + 1 : static_cast<int64_t>(number);
}

int32_t SchemaNode::count_min(const char* keyword) const {
  const int64_t value = count(keyword).value_or(0);
  if (value > kRepeatMax) reject(keyword, str("expected at most ", kRepeatMax, ", got more."));
  return static_cast<int32_t>(value);
}

int32_t SchemaNode::count_max(const char* keyword) const {
  const int64_t value = count(keyword).value_or(int64_t{kRepeatMax} + 1);
  return value > kRepeatMax ? kUnbounded : static_cast<int32_t>(value);
}

DecimalBound SchemaNode::one_bound(const char* keyword, bool is_exclusive, bool is_upper) const {
  const OrderedJson& value = schema_->at(keyword);
  if (!value.is_number()) {
    reject(keyword, str("expected a number, got ", json_type_of(value), "."));
  }
  DecimalBound bound = {.value = Decimal::of(value.dump()), .is_exclusive = is_exclusive};
  // Numbers have no more digits than what is left of the bound, which is nearer to 0 than it was.
  if (bound.value.is_cut) bound.is_exclusive = is_upper == bound.value.is_negative;
  return bound;
}

std::optional<DecimalBound> SchemaNode::bound(const char* inclusive, const char* exclusive,
                                              bool is_upper) const {
  std::optional<DecimalBound> bound;
  if (has(inclusive)) bound = one_bound(inclusive, false, is_upper);
  if (!has(exclusive)) return bound;
  const DecimalBound other = one_bound(exclusive, true, is_upper);
  return !bound || is_tighter(other, *bound, is_upper) ? other : bound;
}

std::optional<Decimal> SchemaNode::divisor() const {
  if (!has("multipleOf")) return std::nullopt;
  const OrderedJson& value = schema_->at("multipleOf");
  if (!value.is_number() || value.get<double>() <= 0) {
    reject("multipleOf", str("expected a number above 0, got ", quote(value.dump()), "."));
  }
  return Decimal::of(value.dump());
}

std::vector<std::string> SchemaNode::types() const {
  std::vector<std::string> types;
  const auto add = [&](std::string_view type) {
    if (!is_in(types, type)) types.emplace_back(type);
  };
  if (!has("type")) {
    for (const auto& [keyword, value] : schema_->items()) {
      if (const TypeKeyword* known = find_type_keyword(keyword)) add(known->type);
    }
    return types;
  }
  const OrderedJson& value = schema_->at("type");
  const OrderedJson list = value.is_array() ? value : OrderedJson::array({value});
  for (const OrderedJson& type : list) {
    if (!type.is_string() || !is_in(kTypes, type.get<std::string>())) {
      reject("type", str("expected object, array, string, number, integer, boolean or null, got ",
                         quote(type.dump()), "."));
    }
    add(type.get<std::string>());
  }
  if (types.empty()) reject("type", "expected at least one type, got none.");
  return types;
}

}  // namespace halley
