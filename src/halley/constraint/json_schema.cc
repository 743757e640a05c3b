#include "halley/constraint/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/intersection.h"
#include "halley/constraint/json_grammar.h"
#include "halley/constraint/number_range.h"
#include "halley/constraint/pattern.h"
#include "halley/constraint/schema_node.h"
#include "halley/constraint/schema_reference.h"
#include "halley/constraint/string_rules.h"
#include "halley/constraint/unique_items.h"

namespace halley {
namespace {

constexpr JsonSchemaLimits kLimits;

// Keywords that determine a value by themselves.
constexpr const char* kForms[] = {"$ref", "enum", "const", "anyOf", "oneOf", "allOf"};
constexpr const char* kMapKeywords[] = {"propertyNames", "patternProperties", "minProperties",
                                        "maxProperties"};

class SchemaCompiler {
 public:
  SchemaCompiler(GrammarBuilder& builder, const OrderedJson& root, const std::string& where)
      : builder_(builder), json_(builder), root_(root), where_(where) {}

  ExprId compile() {
    const ExprId values = rule_of("", root_);
    // References are followed in a loop, so that a chain of them is no recursion.
    while (!pending_.empty()) {
      const auto [pointer, schema, rule] = pending_.front();
      pending_.pop_front();
      builder_.define_rule(rule, values_of(SchemaNode(*schema, str(where_, "#", pointer)), 0));
    }
    return values;
  }

 private:
  struct PendingRule {
    std::string pointer;
    const OrderedJson* schema;
    ExprId rule;
  };

  ExprId rule_of(const std::string& pointer, const OrderedJson& schema) {
    const auto [found, is_new] = rules_.try_emplace(pointer, 0);
    if (is_new) {
      found->second = builder_.declare_rule();
      pending_.push_back({pointer, &schema, found->second});
    }
    return found->second;
  }

  ExprId values_of(const SchemaNode& node, int depth) {
    if (depth >= kLimits.depth_max) {
      throw InputError(str(node.path(), ": expected at most ", kLimits.depth_max,
                           " schemas inside each other, got more. Use $ref."));
    }
    if (node.json().is_boolean()) {
      return node.json().get<bool>() ? json_.any_value() : builder_.nothing();
    }
    node.check_keywords();
    const ExprId values = not_null_values(node, depth);
    return node.boolean_or("nullable", false) ? builder_.choice({values, json_.null()}) : values;
  }

  ExprId not_null_values(const SchemaNode& node, int depth) {
    for (const char* form : kForms) {
      if (!node.has(form)) continue;
      const std::string_view name = form;
      const bool may_have_type = name == "enum" || name == "const";
      const std::optional<std::string> other =
          may_have_type ? node.other_keyword({name, "type"}) : node.other_keyword({name});
      if (other) {
        node.reject_unsupported(str(quote(name), " together with ", quote(*other),
                                    " is not supported in constrained output. Write the "
                                    "restrictions into one schema."));
      }
      return form_values(node, form, depth);
    }
    return typed_values(node, depth);
  }

  ExprId form_values(const SchemaNode& node, const char* form, int depth) {
    const std::string_view name = form;
    if (name == "$ref") {
      const SchemaReference reference = resolve_reference(root_, node);
      return rule_of(reference.pointer, *reference.schema);
    }
    if (name == "enum") return enum_values(node, node.array(form));
    if (name == "const") return enum_values(node, OrderedJson::array({node.json().at(form)}));
    const OrderedJson& schemas = node.array(form);
    if (schemas.empty()) node.reject(form, "expected at least one schema, got none.");
    if (name == "allOf" && schemas.size() != 1) {
      node.reject_unsupported(
          str("\"allOf\" of ", schemas.size(),
              " schemas is not supported in constrained output, only of one. Write them as one."));
    }
    std::vector<ExprId> choices;
    for (size_t i = 0; i < schemas.size(); ++i) {
      choices.push_back(values_of(node.child(form, i), depth + 1));
    }
    return builder_.choice(choices);
  }

  ExprId enum_values(const SchemaNode& node, const OrderedJson& values) {
    const std::vector<std::string> types =
        node.has("type") ? node.types() : std::vector<std::string>{};
    std::vector<ExprId> choices;
    for (const OrderedJson& value : values) {
      const bool has_some_type =
          types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string& type) {
            return has_type(value, type);
          });
      if (has_some_type) choices.push_back(json_.literal(value));
    }
    if (choices.empty()) {
      node.reject(node.has("enum") ? "enum" : "const",
                  "expected at least one value of the schema's type, got none.");
    }
    return builder_.choice(choices);
  }

  ExprId typed_values(const SchemaNode& node, int depth) {
    const std::vector<std::string> types = node.types();
    if (types.empty()) return json_.any_value();
    std::vector<ExprId> choices;
    for (const std::string& type : types) {
      // Every integer is a number: with "number", "integer" adds nothing.
      const bool is_number_too =
          type == "integer" && std::find(types.begin(), types.end(), "number") != types.end();
      if (!is_number_too) choices.push_back(values_of_type(node, type, depth));
    }
    return builder_.choice(choices);
  }

  ExprId values_of_type(const SchemaNode& node, const std::string& type, int depth) {
    if (type == "object") return object_values(node, depth);
    if (type == "array") return array_values(node, depth);
    if (type == "string") return string_values(node);
    if (type == "integer" || type == "number") return number_values(node, type == "integer");
    return type == "boolean" ? json_.boolean() : json_.null();
  }

  ExprId number_values(const SchemaNode& node, bool is_integer) {
    const std::optional<DecimalBound> min = node.bound("minimum", "exclusiveMinimum", false);
    const std::optional<DecimalBound> max = node.bound("maximum", "exclusiveMaximum", true);
    const std::optional<Decimal> divisor = node.divisor();
    const auto values = [&](GrammarBuilder& builder) {
      if (!is_integer) {
        if (!min && !max && !divisor) return json_.number();
        return decimal_range(builder, min, max);
      }
      std::optional<int64_t> first, last;
      if (min) first = integer_within(*min, false);
      if (max) last = integer_within(*max, true);
      return integer_range(builder, first, last);
    };
    if (!divisor) return values(builder_);
    std::vector<Grammar> both(2);
    GrammarBuilder range(node.path(), builder_);
    both[0] = range.finish(values(range));
    GrammarBuilder part(node.place("multipleOf"), builder_);
    const std::optional<ExprId> texts = multiples(part, *divisor);
    if (!texts) {
      node.reject_unsupported(
          str("a \"multipleOf\" of more than ", kDivisorMax,
              ", not counting zeros at its end, or of more than 6 digits behind "
              "the point is not supported in constrained output."));
    }
    both[1] = part.finish(*texts);
    return intersection_of(builder_, both);
  }

  ExprId string_values(const SchemaNode& node) {
    const std::optional<StringRules> rules = string_rules(node);
    if (!rules) return builder_.nothing();
    if (rules->patterns.empty()) return json_.string(rules->num_chars_min, rules->num_chars_max);
    // Fields of one kind have the same rules, and intersections are dear.
    const auto [found, is_new] = strings_.try_emplace(*rules, 0);
    if (is_new) found->second = json_.quoted(string_texts(builder_, *rules, node.path()));
    return found->second;
  }

  ExprId array_values(const SchemaNode& node, int depth) {
    const bool is_set = node.boolean_or("uniqueItems", false);
    JsonArrayShape shape;
    shape.num_min = node.count_min("minItems");
    shape.num_max = node.count_max("maxItems");
    if (shape.num_min > shape.num_max) return builder_.nothing();
    if (node.has("prefixItems")) {
      for (size_t i = 0; i < node.array("prefixItems").size(); ++i) {
        shape.first_items.push_back(values_of(node.child("prefixItems", i), depth + 1));
      }
    }
    if (!node.has("items")) {
      shape.items = json_.any_value();
    } else if (node.json().at("items").is_array()) {
      node.reject_unsupported("\"items\" as an array is not supported. Use \"prefixItems\".");
    } else {
      const SchemaNode items = node.child("items");
      if (is_set && shape.first_items.empty()) {
        if (const auto values = listed_values(root_, items)) {
          return set_of(json_, *values, shape.num_min, shape.num_max);
        }
      }
      shape.items = values_of(items, depth + 1);
    }
    return json_.array(shape);
  }

  ExprId object_values(const SchemaNode& node, int depth) {
    for (const char* keyword : kMapKeywords) {
      if (node.has(keyword)) return map_values(node, depth);
    }
    std::vector<JsonMember> members;
    std::map<std::string, size_t> index_of;
    if (node.has("properties")) {
      for (const auto& [name, schema] : node.object("properties").items()) {
        index_of[name] = members.size();
        const SchemaNode child(schema, node.place("properties") + pointer_part(name));
        members.push_back({name, values_of(child, depth + 1), false});
      }
    }
    const std::optional<ExprId> additional = additional_values(node, depth);
    if (node.has("required")) {
      for (const OrderedJson& name : node.array("required")) {
        if (!name.is_string()) node.reject("required", "expected an array of strings.");
        const auto [found, is_new] = index_of.try_emplace(name.get<std::string>(), members.size());
        // An undeclared member is an additional one.
        if (is_new) members.push_back({found->first, required_values(node, additional), true});
        members[found->second].is_required = true;
      }
    }
    if (members.empty() && additional && !node.has("additionalProperties")) {
      return json_.any_object();
    }
    check_names(node, members);
    return json_.object(members, additional);
  }

  // Objects whose names are restricted, or counted. Their names may occur twice, so that no more
  // than one can be demanded.
  ExprId map_values(const SchemaNode& node, int depth) {
    if (node.has("properties") || node.has("required")) {
      node.reject_unsupported(
          "\"properties\" or \"required\" together with \"propertyNames\", \"patternProperties\", "
          "\"minProperties\" or \"maxProperties\" is not supported in constrained output.");
    }
    const int32_t num_min = node.count_min("minProperties");
    const int32_t num_max = node.count_max("maxProperties");
    if (num_min > 1) {
      node.reject_unsupported("\"minProperties\" above 1 is not supported in constrained output.");
    }
    if (num_min > num_max) return builder_.nothing();
    std::optional<ExprId> names;
    if (node.has("propertyNames")) names = values_of(names_node(node), depth + 1);
    std::optional<ExprId> values = additional_values(node, depth);
    if (node.has("patternProperties")) {
      const OrderedJson& patterns = node.object("patternProperties");
      if (patterns.size() != 1 || names) {
        node.reject_unsupported(
            "\"patternProperties\" of more than one pattern, or together with \"propertyNames\", "
            "is "
            "not supported in constrained output.");
      }
      // Names that do not match the pattern are not written.
      const auto first = patterns.begin();
      const std::string& pattern = first.key();
      const std::string place = node.place("patternProperties") + pointer_part(pattern);
      names = json_.quoted(pattern_texts(builder_, pattern, TextForm::kJsonString, place));
      values = values_of(SchemaNode(first.value(), place), depth + 1);
    }
    if (!values) return num_min == 0 ? json_.object({}, std::nullopt) : builder_.nothing();
    return json_.map(names.value_or(json_.string(0, kUnbounded)), *values, num_min, num_max);
  }

  // A schema of names speaks of strings without saying so.
  static SchemaNode names_node(const SchemaNode& node) {
    const SchemaNode names = node.child("propertyNames");
    if (!names.json().is_object()) return names;
    names.check_keywords();
    for (const char* form : kForms) {
      if (names.has(form)) return names;
    }
    if (names.types() != std::vector<std::string>{"string"}) {
      node.reject_unsupported(
          "\"propertyNames\" that do not say \"type\": \"string\", or have no \"enum\", "
          "\"pattern\" "
          "or other restriction of strings, are not supported in constrained output.");
    }
    return names;
  }

  // Absent means true in JSON Schema, but false here if there are "properties", as in xgrammar and
  // others: few schemas intend additional members.
  std::optional<ExprId> additional_values(const SchemaNode& node, int depth) {
    if (!node.has("additionalProperties")) {
      return node.has("properties") ? std::nullopt : std::optional(json_.any_value());
    }
    if (node.json().at("additionalProperties").is_boolean()) {
      return node.boolean_or("additionalProperties", false) ? std::optional(json_.any_value())
                                                            : std::nullopt;
    }
    return values_of(node.child("additionalProperties"), depth + 1);
  }

  ExprId required_values(const SchemaNode& node, std::optional<ExprId> additional) {
    if (additional) return *additional;
    return node.has("additionalProperties") ? builder_.nothing() : json_.any_value();
  }

  static void check_names(const SchemaNode& node, const std::vector<JsonMember>& members) {
    for (const JsonMember& member : members) {
      if (member.name.size() > JsonGrammar::kNameBytesMax) {
        node.reject("properties", str("expected names of at most ", JsonGrammar::kNameBytesMax,
                                      " bytes, got ", member.name.size(), "."));
      }
    }
  }

  GrammarBuilder& builder_;
  JsonGrammar json_;
  const OrderedJson& root_;
  const std::string& where_;
  std::map<std::string, ExprId> rules_;  // by JSON pointer
  std::map<StringRules, ExprId> strings_;
  std::deque<PendingRule> pending_;
};

}  // namespace

ExprId json_schema_values(GrammarBuilder& builder, const OrderedJson& schema,
                          const std::string& where) {
  return SchemaCompiler(builder, schema, where).compile();
}

Grammar json_schema_grammar(const OrderedJson& schema, const std::string& where) {
  GrammarBuilder builder(where);
  return builder.finish(json_schema_values(builder, schema, where));
}

Grammar json_object_grammar() {
  GrammarBuilder builder("json_object");
  return builder.finish(JsonGrammar(builder).any_object());
}

}  // namespace halley
