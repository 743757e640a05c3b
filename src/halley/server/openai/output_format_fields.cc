#include "halley/server/openai/output_format_fields.h"

#include <array>
#include <string>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"
#include "halley/server/openai/member_table.h"

namespace halley {
namespace {

using Kind = OutputFormat::Kind;

constexpr uint8_t kGenerate = bit_of(ApiEndpoint::kCompletions) | bit_of(ApiEndpoint::kChat);
// Whoever reads the texts has limits of its own (constraint/); these keep them short in messages.
constexpr size_t kRegexBytesMax = size_t{16} << 10;
constexpr size_t kGrammarBytesMax = size_t{64} << 10;
constexpr size_t kChoicesMax = 1024;
constexpr size_t kChoiceBytesMax = size_t{16} << 10;
// A schema that is sent as a text.
constexpr JsonLimits kSchemaLimits = {.depth_max = 64, .num_values_max = 1'000'000};

constexpr const char* kResponseFormatSchema =
    R"({"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["text", "json_object", "json_schema"]},
        "json_schema": {"type": "object", "required": ["name", "schema"], "properties": {
        "name": {"type": "string"}, "description": {"type": "string"},
        "schema": {"type": "object"}, "strict": {"type": "boolean"}}},
        "schema": {"type": "object"}}})";
constexpr const char* kSchemaSchema = R"({"anyOf": [{"type": "object"}, {"type": "string"}]})";
constexpr const char* kChoiceSchema =
    R"({"type": "array", "minItems": 1, "maxItems": 1024, "items": {"type": "string"}})";
constexpr const char* kStructuredOutputsSchema =
    R"({"type": "object", "properties": {
        "json": {"anyOf": [{"type": "object"}, {"type": "string"}]}, "regex": {"type": "string"},
        "choice": {"type": "array", "minItems": 1, "maxItems": 1024, "items": {"type": "string"}},
        "grammar": {"type": "string"}, "json_object": {"type": "boolean"}}})";

void set_format(OutputFormat format, ApiRequest& request) {
  const OutputFormat& other = request.output_format;
  if (other.kind != Kind::kText) {
    throw invalid_field(format.field,
                        str(format.field, ": expected one description of the output ",
                            "in a request, got ", other.field, " too. Send one of them."));
  }
  request.output_format = std::move(format);
}

OutputFormat json_object_format(std::string path) {
  return {.kind = Kind::kJsonObject, .field = std::move(path)};
}

// A JSON schema, or the text of one.
OutputFormat schema_format(const OrderedJson& json, std::string path) {
  OutputFormat format = {.kind = Kind::kJsonSchema, .field = std::move(path)};
  if (!json.is_string()) {
    expect_object(json, format.field);
    format.schema = json;
    return format;
  }
  try {
    format.schema =
        parse_ordered_json(json.get_ref<const std::string&>(), format.field, kSchemaLimits);
  } catch (const InputError& error) {
    throw invalid_field(format.field, error.what());
  }
  expect_object(format.schema, format.field);
  return format;
}

OutputFormat text_format(Kind kind, const OrderedJson& json, std::string path) {
  OutputFormat format = {.kind = kind, .field = std::move(path)};
  if (!json.is_string() || json.get_ref<const std::string&>().empty()) {
    throw invalid_field(format.field,
                        str(format.field, ": expected a text that is not empty, got ",
                            json.is_string() ? "an empty one" : kind_in_words(json), "."));
  }
  format.text = json.get<std::string>();
  const size_t num_bytes_max = kind == Kind::kRegex ? kRegexBytesMax : kGrammarBytesMax;
  if (format.text.size() > num_bytes_max) {
    throw invalid_field(format.field, str(format.field, ": expected at most ", num_bytes_max,
                                          " bytes, got ", format.text.size(), "."));
  }
  return format;
}

OutputFormat regex_format(const OrderedJson& json, std::string path) {
  return text_format(Kind::kRegex, json, std::move(path));
}

OutputFormat grammar_format(const OrderedJson& json, std::string path) {
  return text_format(Kind::kGrammar, json, std::move(path));
}

OutputFormat choice_format(const OrderedJson& json, std::string path) {
  OutputFormat format = {.kind = Kind::kChoice, .field = std::move(path)};
  const std::string& field = format.field;
  if (!json.is_array() || json.empty() || json.size() > kChoicesMax) {
    throw invalid_field(field, str(field, ": expected a list of 1 to ", kChoicesMax, " texts, got ",
                                   json.is_array() ? str(json.size()) : kind_in_words(json), "."));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string where = str(field, "[", i, "]");
    if (!json[i].is_string()) {
      throw invalid_field(where,
                          str(where, ": expected a text, got ", kind_in_words(json[i]), "."));
    }
    format.choices.push_back(json[i].get<std::string>());
    if (format.choices.back().size() > kChoiceBytesMax) {
      throw invalid_field(where, str(where, ": expected at most ", kChoiceBytesMax, " bytes, got ",
                                     format.choices.back().size(), "."));
    }
  }
  return format;
}

OutputFormat flag_format(const OrderedJson& json, std::string path) {
  if (!json.is_boolean()) {
    throw invalid_field(path,
                        str(path, ": expected true or false, got ", kind_in_words(json), "."));
  }
  if (!json.get<bool>()) return {};
  return json_object_format(std::move(path));
}

template <OutputFormat (*kRead)(const OrderedJson&, std::string)>
void store_format(const FieldValue& value, ApiRequest& request) {
  set_format(kRead(value.json, value.name), request);
}

struct StructuredOutput {
  const char* name;
  OutputFormat (*read)(const OrderedJson& json, std::string path);
};
constexpr auto kStructuredOutputs = std::to_array<StructuredOutput>({{"json", schema_format},
                                                                     {"regex", regex_format},
                                                                     {"choice", choice_format},
                                                                     {"grammar", grammar_format},
                                                                     {"json_object", flag_format}});

void store_structured_outputs(const FieldValue& value, ApiRequest& request) {
  check_members(value.json, value.name, ObjectKind::kStructuredOutputs, value);
  bool has_format = false;
  for (const StructuredOutput& row : kStructuredOutputs) {
    const auto member = value.json.find(row.name);
    if (member == value.json.end() || member->is_null()) continue;
    OutputFormat format = row.read(*member, str(value.name, ".", row.name));
    if (format.kind == Kind::kText) continue;
    set_format(std::move(format), request);
    has_format = true;
  }
  if (has_format) return;
  throw invalid_field(value.name,
                      "structured_outputs: expected one of json, regex, choice, grammar and "
                      "json_object (true), got none.");
}

// {"type": "json_schema", "json_schema": {"name": ..., "schema": ...}} as OpenAI has it.
OutputFormat named_schema_format(const FieldValue& value) {
  const std::string path = "response_format.json_schema";
  const OrderedJson& declared = object_member(value.json, "json_schema", value.name);
  check_members(declared, path, ObjectKind::kJsonSchema, value);
  check_name(string_member(declared, "name", path, kNameBytesMax), path + ".name");
  bool_member(declared, "strict", path);
  return schema_format(object_member(declared, "schema", path), path + ".schema");
}

void store_response_format(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = value.json;
  check_members(json, value.name, ObjectKind::kResponseFormat, value);
  const std::string type = string_member(json, "type", value.name, kNameBytesMax);
  const auto has = [&](const char* name) {
    const auto member = json.find(name);
    return member != json.end() && !member->is_null();
  };
  const bool has_bare_schema = has("schema");
  const bool has_named_schema = has("json_schema");
  if (type != "text" && type != "json_object" && type != "json_schema") {
    throw invalid_field("response_format.type",
                        str("response_format.type: expected text, json_object or json_schema, "
                            "got ",
                            quote(type, 40), "."));
  }
  if (has_named_schema && (type != "json_schema" || has_bare_schema)) {
    throw invalid_field("response_format.json_schema",
                        "response_format.json_schema: expected type \"json_schema\" with it, and "
                        "no \"schema\" with it.");
  }
  if (has_bare_schema) {
    // llama.cpp and others have the schema here, for either type.
    if (type == "text") {
      throw invalid_field("response_format.schema",
                          "response_format.schema: expected type \"json_object\" with it.");
    }
    const OrderedJson& schema = object_member(json, "schema", value.name);
    set_format(schema_format(schema, "response_format.schema"), request);
  } else if (type == "json_schema") {
    set_format(named_schema_format(value), request);
  } else if (type == "json_object") {
    set_format(json_object_format(value.name), request);
  }
}

constexpr auto kFields = std::to_array<ApiField>({
    {.name = "response_format",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kResponseFormatSchema,
     .text =
         "text (default), json_object, or json_schema: the output is that. The schema stands in "
         "json_schema.schema, or in schema (llama.cpp). A request has one description of the "
         "output: this field or one of the next ones.",
     .store = store_response_format},
    {.name = "structured_outputs",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kStructuredOutputsSchema,
     .text = "One of json (a schema, or the text of one), regex (the whole output matches it), "
             "choice (the output is one of up to 1024 texts), grammar (GBNF or Lark) and "
             "json_object (true).",
     .store = store_structured_outputs},
    {.name = "guided_json",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kSchemaSchema,
     .text = "structured_outputs.json by its older name.",
     .store = store_format<schema_format>},
    {.name = "guided_regex",
     .endpoints = kGenerate,
     .type = FieldType::kString,
     .range = {1, kRegexBytesMax},
     .text = "structured_outputs.regex by its older name.",
     .store = store_format<regex_format>},
    {.name = "guided_choice",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kChoiceSchema,
     .text = "structured_outputs.choice by its older name.",
     .store = store_format<choice_format>},
    {.name = "guided_grammar",
     .endpoints = kGenerate,
     .type = FieldType::kString,
     .range = {1, kGrammarBytesMax},
     .text = "structured_outputs.grammar by its older name.",
     .store = store_format<grammar_format>},
    {.name = "json_schema",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kSchemaSchema,
     .text = "structured_outputs.json by the name of llama.cpp and SGLang.",
     .store = store_format<schema_format>},
    {.name = "grammar",
     .endpoints = kGenerate,
     .type = FieldType::kString,
     .range = {1, kGrammarBytesMax},
     .text = "structured_outputs.grammar by the name of llama.cpp.",
     .store = store_format<grammar_format>},
    {.name = "regex",
     .endpoints = kGenerate,
     .type = FieldType::kString,
     .range = {1, kRegexBytesMax},
     .text = "structured_outputs.regex by the name of SGLang.",
     .store = store_format<regex_format>},
    {.name = "ebnf",
     .endpoints = kGenerate,
     .type = FieldType::kString,
     .range = {1, kGrammarBytesMax},
     .text = "structured_outputs.grammar by the name of SGLang.",
     .store = store_format<grammar_format>},
});

}  // namespace

std::span<const ApiField> output_format_fields() { return kFields; }

void store_schema_format(const OrderedJson& schema, const std::string& path, ApiRequest& request) {
  expect_object(schema, path);
  set_format(schema_format(schema, path), request);
}

void store_object_format(const std::string& path, ApiRequest& request) {
  set_format(json_object_format(path), request);
}

}  // namespace halley
